"""A single run for a training that several processes make together. Rank 0 records it, with the figures of all ranks;
the others send theirs. A lost rank is reported in one line, and blocks no other."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

import numpy as np

from gradstudio.core.events import Kind
from gradstudio.core.row import Layer
from gradstudio.core.text import join_with_and, number
from gradstudio.core.unknown import is_known
from gradstudio.watching.births.step_births import NO_BIRTH
from gradstudio.watching.hooks.guard import say
from gradstudio.watching.hooks.rank_place import Place
from gradstudio.watching.ranks.blame import blame_ranks
from gradstudio.watching.ranks.mail import Mail
from gradstudio.watching.ranks.merging import Shares, merge
from gradstudio.watching.ranks.rank_letters import Box, Figures, Letter
from gradstudio.watching.steps.measured_step import MeasuredStep

COMES_WITHIN = 60.0  # seconds in which the other ranks must have begun, too
SILENT = 20.0  # seconds without a letter, after which a rank is lost: it writes one at every round
AT_THE_END = 5.0  # seconds that rank 0 waits for the last letters


class Joinable(Protocol):
    """A run of this process in which other ranks take part."""

    id: str
    layers: tuple[Layer, ...]

    @property
    def has_diverged(self) -> bool: ...
    def take(self, made: MeasuredStep) -> Any: ...
    def note(self, text: str, kind: Kind = "notice") -> None: ...


class Sender:
    """The run on a rank other than 0: its figures are sent. Its own run stays in memory, and is recorded here only if
    rank 0 has none with the same parameters."""

    def __init__(
        self, mail: Mail, place: Place, card: dict[str, Any], local_run: Joinable, keep: Callable[[], object]
    ) -> None:
        """`keep` records the run here."""
        self._mail, self._place, self._card = mail, place, card
        self._local_run, self._keep = local_run, keep
        self._letter, self._writing, self._sending = Letter(), threading.Lock(), threading.Lock()
        self._began = time.monotonic()
        self._is_alone = self._is_joined = self._is_over = False
        self._run = ""  # the id of the run that rank 0 records
        mail.show(place.rank, card)

    @property
    def run(self) -> str:
        """The id of the run that rank 0 records; "" if unknown yet."""
        with suppress(RuntimeError, OSError):
            self._look_for_rank_0()
        return self._run

    @property
    def is_recorded(self) -> bool:
        """Whether the run of this rank is in the library separately."""
        return self._is_alone

    def take(self, made: MeasuredStep) -> None:
        """Send the measurements of a step with the next letter."""
        figures = Figures.of(made, with_layers=any(self._card["parted"]))
        self._local_run.take(made)
        with self._writing:
            self._letter.steps.append(figures)
            if made.birth != NO_BIRTH:
                self._letter.births[figures.step] = made.birth

    def skip(self, told: str) -> None:
        """Send the text about a batch that the script has skipped."""
        with self._writing:
            self._letter.skipped.append(told)

    def settle(self, _seconds: float) -> None:
        """Send pending data at once."""
        self.go_round()

    def go_round(self) -> None:
        """Send the pending data, even if there is none. The postman calls this."""
        try:
            self._look_for_rank_0()
            if not self._is_alone:
                self._send()
        except (RuntimeError, OSError):  # rank 0 has ended, and the store with it
            self._go_alone()

    def _look_for_rank_0(self) -> None:
        if self._is_alone or self._is_joined:
            return
        card = self._mail.card(0)
        if card is None and time.monotonic() - self._began < COMES_WITHIN:
            return
        if card is not None and card["layers"] == self._card["layers"]:
            self._is_joined, self._run = True, card["run"]
        else:
            self._go_alone()

    def _go_alone(self) -> None:
        """Record the run here, unless rank 0 does."""
        if not (self._is_joined or self._is_alone):
            self._is_alone = True
            self._keep()

    def _send(self, *, over: bool = False) -> None:
        with self._sending:  # both the postman and the script may call this, and letters are numbered
            if self._is_over:
                return
            self._is_over = over
            with self._writing:
                letter, self._letter = self._letter, Letter()
            letter.over = over
            self._mail.send(self._place.rank, letter.to_bytes())

    def close(self) -> None:
        """Send the rest."""
        try:
            self._look_for_rank_0()
            if self._is_joined:
                self._send(over=True)
        except (RuntimeError, OSError):
            pass
        self._go_alone()


class Collector:
    """The run on rank 0: a step is recorded once the figures of all ranks are there."""

    is_recorded = True

    def __init__(
        self,
        mail: Mail,
        place: Place,
        card: dict[str, Any],
        local_run: Joinable,
        on_record: Callable[[Any], object],
    ) -> None:
        """`local_run` is the run that is recorded; `on_record` is called with the outcome of each of its steps."""
        self._mail, self._place, self._card = mail, place, card
        self._local_run, self._on_record = local_run, on_record
        self._own: deque[MeasuredStep] = deque()
        self._boxes = {rank: Box() for rank in range(1, place.ranks)}
        self._collecting = threading.RLock()
        self.run = local_run.id
        self._cards: dict[int, dict[str, Any]] = {0: card}
        self._lost: set[int] = set()  # ranks for which that was reported
        self._is_closing = self._has_told = False
        mail.show(0, card)

    def take(self, made: MeasuredStep) -> None:
        """Record a step as soon as the other ranks' figures of it are there."""
        self._own.append(made)

    def go_round(self) -> None:
        """Read letters, and record complete steps. Called by the postman."""
        with self._collecting:
            try:
                for rank, box in self._boxes.items():
                    if box.is_open:
                        self._look_into(rank, box)
            except (RuntimeError, OSError) as fault:
                for rank in [rank for rank, box in self._boxes.items() if box.is_open]:
                    self._lose(rank, f"cannot be reached any more: {' '.join(str(fault).split())[:100]}")
            self._record()

    def settle(self, seconds: float) -> None:
        """Record every step of this rank, waiting at most this many seconds for the other ranks' figures."""
        until = time.monotonic() + seconds
        while True:
            with self._collecting:
                self.go_round()
                waits = self._own and any(box.is_open for box in self._boxes.values())
                if not waits or time.monotonic() >= until:
                    break
            time.sleep(0.02)
        with self._collecting:
            while self._own:
                self._record_next()

    def close(self) -> None:
        """Record the rest."""
        self._is_closing = True
        self.settle(AT_THE_END)
        if missing := sorted(self._boxes.keys() - self._cards.keys() - self._lost):
            ranks = f"rank {missing[0]} was" if len(missing) == 1 else f"ranks {join_with_and(missing)} were"
            self._local_run.note(f"{ranks} not heard: loss and gradient are those of the others")

    # ---- letters

    def _look_into(self, rank: int, box: Box) -> None:
        if rank not in self._cards:
            if (card := self._mail.card(rank)) is not None:
                self._meet(rank, box, card)
            elif box.silence > COMES_WITHIN:
                self._lose(rank, "has not begun to train what rank 0 does, or is not watched")
            return
        while (text := self._mail.receive(rank)) is not None:
            box.take(Letter.from_bytes(text))
            while box.skipped:
                self._local_run.note(f"rank {rank}: {box.skipped.popleft()}", "nan_batch")
        if box.is_open and box.silence > SILENT:
            self._lose(rank, f"has sent nothing for {SILENT:g} s")

    def _meet(self, rank: int, box: Box, card: dict[str, Any]) -> None:
        if card["layers"] != self._card["layers"]:
            self._lose(rank, "trains other parameters, as a run of its own")
            return
        self._cards[rank] = card
        box.latest = time.monotonic()
        local = f", local rank {card['local_rank']}" if card["local_rank"] else ""
        self._local_run.note(f"rank {rank} trains on {card['host']}, process {card['process']}{local}")

    def _lose(self, rank: int, why: str) -> None:
        """Continue without a rank."""
        self._boxes[rank].is_open = False
        if not self._is_closing:
            self._lost.add(rank)
            text = f"rank {rank} {why}: its figures are missing from here on"
            say(text)
            self._local_run.note(text)

    # ---- rows

    def _record(self) -> None:
        while self._own and all(box.has(self._own[0].step) for box in self._boxes.values()):
            self._record_next()

    def _record_next(self) -> None:
        own, run = self._own.popleft(), self._local_run
        others = {rank: figures for rank, box in self._boxes.items() if (figures := box.of(own.step)) is not None}
        births = {0: own.birth} | {rank: box.birth_of(own.step) for rank, box in self._boxes.items()}
        whole = merge(own, others, self._shares())
        if whole.went_nonfinite and not run.has_diverged:
            losses = {0: own.loss} | {rank: each.loss for rank, each in others.items()}
            birth, blame = blame_ranks(own.step, losses, births)
            whole = whole._replace(birth=birth, blame=blame)
        self._tell_of_local(own, others, whole)
        self._on_record(run.take(whole))

    def _tell_of_local(self, own: MeasuredStep, others: Mapping[int, Figures], whole: MeasuredStep) -> None:
        """Report once why there is no norm: each rank has a gradient of its own, and the one used by the update is not
        seen."""
        if self._has_told or is_known(whole.gradient.norm) or not is_known(own.gradient.norm):
            return
        self._has_told = True
        norms = join_with_and([number(each) for each in (own.gradient.norm, *(each.norm for each in others.values()))])
        self._local_run.note(
            f"the ranks' own gradients differ, with local norms {norms}: that of the update is not known"
        )

    def _shares(self) -> Shares:
        cards = [self._cards.get(rank, self._card) for rank in range(self._place.ranks)]
        parted = np.array(self._card["parted"], bool)
        counted = np.array([card["counted"] for card in cards])
        counted[1:, ~parted] = 0
        return Shares(np.array([card["sizes"] for card in cards]), counted, parted)

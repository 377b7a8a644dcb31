"""The processes of the ranks: started together, queried together, supervised while they work, and ended together.

A rank that exits is noticed at once, by its process. One that hangs is noticed through the others: each writes into a
small shared file since when it has been waiting in a collective call, or that it has left the training loop. A rank
that does neither while the others wait is the one that hangs. torch itself blames the rank that waits. A stopped
process may be anywhere, even in such a call: it is detected by its heartbeat, which a thread of each rank writes into
that file."""

from __future__ import annotations

import atexit
import tempfile
import time
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np

from gradstudio.core import files, process_server, python_process
from gradstudio.core.experiment import Experiment
from gradstudio.core.knobs import KnobError
from gradstudio.core.rank_placement import Placement
from gradstudio.core.ranks_allowed import RankFailure
from gradstudio.core.text import join_with_and
from gradstudio.engine.ranks import rank_process

START = 180.0  # seconds for importing torch and for the ranks to meet
HANGS = 6.0  # seconds that others wait for a rank
TIMES = 5.0  # and this many times as long as their own work took
STILL = 6.0  # seconds without a heartbeat
LOOK = 0.2  # seconds between two checks whether a rank hangs
STOPPING = 0.5  # seconds that a step may still take once the run is to stop
GOING = 0.5  # seconds in which a process that failed may turn out to have exited
_UNKNOWN = 255  # exit code of a process whose server has ended, and so cannot report it
PRELOADED = ["gradstudio.engine.ranks.warm"]


class CrewStopped(Exception):
    """The run was stopped while a step took too long. The ranks are ended."""


class Crew:
    """The ranks of one experiment. Only one thread may send requests; `close` may be called from any."""

    def __init__(self, experiment: Experiment, stopped: Callable[[], bool], placement: Placement) -> None:
        """Start the processes. KnobError if they refuse, RankFailure if they do not start."""
        self.size, self.step, self.stopped = experiment.distributed.ranks, 0, stopped
        self._temporary = files.temporary_folder(Path(tempfile.gettempdir()))
        self._folder = Path(self._temporary.name)
        shape = rank_process.SHARED, self.size
        self._places, self._beats = np.memmap(self._folder / rank_process.PLACES, np.float64, "w+", shape=shape)
        self._processes: list[BaseProcess] = []
        self._pipes: list[Connection] = []
        self._ends: dict[Any, int] = {}  # whose pipe and whose exit is waited for
        atexit.register(self.close)  # before multiprocessing waits for processes that may be stopped by a signal
        try:
            try:
                self._start(experiment, placement)
            except (EOFError, OSError) as why:
                raise RankFailure(
                    f"The ranks could not be begun: the server that begins them has ended ({why})."
                ) from None
            self.about = self._gather(range(self.size), START)[0]
            if not placement.backend:  # a thread of NCCL's checks the store for as long as a rank lives
                self._forget_folder()  # the ranks have met, and what they share stays with those who have it open
        except BaseException:
            self.close()
            raise

    def _start(self, experiment: Experiment, placement: Placement) -> None:
        context: Any = process_server.context(PRELOADED)
        process_server.start()
        for rank in range(self.size):
            own, end = context.Pipe()
            process = context.Process(
                target=rank_process.main, args=(end, rank, experiment, str(self._folder), placement),
                name=f"rank {rank}", daemon=True,
            )  # fmt: skip
            process.start()
            end.close()
            self._processes.append(process)
            self._pipes.append(own)
            self._ends |= {own: rank, process.sentinel: rank}

    def ask_all(self, word: str, what: Any) -> list[Any]:
        """Send every rank the same request, and return their answers. KnobError if they refuse, RankFailure if one
        cannot answer, which ends them all."""
        return self.ask(range(self.size), word, what)

    def ask(self, ranks: Iterable[int], word: str, what: Any = None) -> list[Any]:
        """Send a request to some of the ranks."""
        ranks = list(ranks)
        try:
            for rank in ranks:
                try:
                    self._pipes[rank].send((word, what))
                except OSError:
                    raise self._describe_loss(rank) from None
            return self._gather(ranks)
        except KnobError:
            raise
        except BaseException:
            self.close()
            raise

    def _gather(self, ranks: Iterable[int], limit: float = 0.0) -> list[Any]:
        """Wait for the answers of these ranks."""
        waiting, answers, refused, began = set(ranks), {}, "", time.monotonic()
        halted = latest = 0.0
        hearts = _Hearts(self._beats)
        while waiting:
            for end in wait(self._ends, LOOK):
                rank = self._ends[end]
                if end is not self._pipes[rank]:  # it has exited, perhaps after its refusal
                    if refused:
                        continue
                    if not (rank in waiting and self._pipes[rank].poll()):
                        raise self._describe_loss(rank)
                if rank in waiting:
                    word, answers[rank] = self._receive(rank)
                    waiting.discard(rank)
                    latest = time.monotonic()
                    refused = answers[rank] if word == "refused" else refused
            if refused and limit:  # others may wait for this one forever, and all are ended
                raise KnobError(refused)
            now = time.monotonic()
            if limit and now > began + limit:
                raise RankFailure(f"Rank {min(waiting)} did not come up within {limit:.0f} s.")
            if now > began + LOOK:
                self._check_hanging(waiting, began, now)
                self._check_slow(waiting, began, latest, now)
                self._check_hearts(hearts, now)
                halted = halted or (now if self.stopped() else 0.0)
                if halted and now > halted + STOPPING:
                    raise CrewStopped
        if refused:
            raise KnobError(refused)
        return [answers[rank] for rank in sorted(answers)]

    def _receive(self, rank: int) -> tuple[str, Any]:
        try:
            word, answer = self._pipes[rank].recv()
        except (EOFError, OSError):
            raise self._describe_loss(rank) from None
        if word == "failed":
            raise self._describe_loss(rank, answer)
        return word, answer

    def _describe_loss(self, rank: int, why: str = "") -> RankFailure:
        """Return the message for a rank that exited or failed. If another one has exited, that one is to blame."""
        end = time.monotonic() + GOING
        unknown: list[int] = []
        while time.monotonic() < end:
            unknown = [other for other, process in enumerate(self._processes) if process.exitcode == _UNKNOWN]
            if len(unknown) == self.size:
                return RankFailure(
                    f"The server that began the {self.size} ranks has ended in step {self.step:,}, and they with it."
                )
            for other, process in enumerate(self._processes):
                code = process.exitcode
                if code not in (None, _UNKNOWN) and (code != 0 or (other == rank and not why)):
                    return self._ended_in_step(other, code)
            time.sleep(0.01)
        if unknown:  # it was a rank's own code, as the server still reports the others
            return self._ended_in_step(unknown[0], _UNKNOWN)
        return RankFailure(f"Rank {rank} of {self.size} failed in step {self.step:,}: {why or 'it does not answer'}.")

    def _ended_in_step(self, rank: int, code: int) -> RankFailure:
        return RankFailure(
            f"Rank {rank} of {self.size} ended in step {self.step:,}: it {python_process.how_it_ended(code)}."
        )

    def _check_hanging(self, waiting: set[int], began: float, now: float) -> None:
        """Raise RankFailure if some ranks have waited far too long for others. `waiting`: those that have not answered
        yet."""
        since = np.array(self._places)
        waits, gone = since > 0, since < 0
        missing = ~waits & np.isin(np.arange(self.size), [*waiting])
        if waits.any() and gone.any():
            raise RankFailure(
                f"Rank {_numbers(gone)} of {self.size} has no batch for step {self.step:,} and has left the training "
                f"loop. {_waiting(waits)} for it in the all-reduce, for good."
            )
        if not waits.any() or not missing.any():
            return
        latest = float(since[waits].max())
        if now - latest > max(HANGS, TIMES * (latest - began)):
            raise RankFailure(
                f"Rank {_numbers(missing)} of {self.size} hangs in step {self.step:,}: for {now - latest:.0f} s it has "
                f"not come to the all-reduce, where {_waiting(waits).lower()}."
            )

    def _check_slow(self, waiting: set[int], began: float, latest: float, now: float) -> None:
        """Raise RankFailure if some ranks take far longer than those that have answered, and no rank waits for them:
        ranks that are never synced make no call together."""
        if latest and not np.any(self._places) and now - latest > max(HANGS, TIMES * (latest - began)):
            raise RankFailure(
                f"Rank {join_with_and(sorted(waiting))} of {self.size} hangs in step {self.step:,}: for "
                f"{now - latest:.0f} s it has not ended the step that the others have made."
            )

    def _check_hearts(self, hearts: _Hearts, now: float) -> None:
        """Raise RankFailure if processes are stopped."""
        still = hearts.look(now)
        if still.any():
            raise RankFailure(
                f"Rank {_numbers(still)} of {self.size} hangs in step {self.step:,}: for {STILL:.0f} s its process has "
                "stood still, as one that a signal or a debugger has stopped."
            )

    def close(self) -> None:
        """End the process of every rank, whatever it is doing."""
        atexit.unregister(self.close)
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()
        for pipe in self._pipes:
            pipe.close()
        self._forget_folder()

    def _forget_folder(self) -> None:
        self._temporary.cleanup()


class _Hearts:
    """The heartbeats of the ranks. What counts is how often they were found unchanged: if this program itself was
    stopped, so were all of them."""

    def __init__(self, beats: np.ndarray) -> None:
        self._beats, self._seen, self._latest = beats, np.array(beats), time.monotonic()
        self._still = np.zeros(len(beats))  # seconds

    def look(self, now: float) -> np.ndarray:
        """Return for each rank whether its heartbeat has stood still for too long, (ranks,). A rank without any
        heartbeat has not started yet."""
        beats = np.array(self._beats)
        passed, self._latest = min(now - self._latest, 2 * LOOK), now
        self._still = np.where((beats == self._seen) & (beats > 0), self._still + passed, 0.0)
        self._seen = beats
        return self._still > STILL


def _numbers(ranks: np.ndarray) -> str:
    """Return the numbers of the ranks with a True."""
    return join_with_and(np.flatnonzero(ranks).tolist())


def _waiting(waits: np.ndarray) -> str:
    """Return the ranks that wait, with their verb."""
    return f"Ranks {_numbers(waits)} wait" if waits.sum() > 1 else f"Rank {_numbers(waits)} waits"

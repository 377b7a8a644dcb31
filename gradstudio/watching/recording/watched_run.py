"""The run of one observer: its facts are read off at its first row, its rows are recorded and judged."""

from __future__ import annotations

import hashlib
import math
import platform
import re
import secrets
import sys
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer

import gradstudio
from gradstudio.core.diagnosis.birth_remedies import of_birth
from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.diagnosis.heard_faults import heard_fault
from gradstudio.core.events import Kind
from gradstudio.core.history import Layer, Row
from gradstudio.core.presets import Preset
from gradstudio.core.provenance import Provenance
from gradstudio.core.text import LONGEST_TITLE, brief, clean, number, plural, shortened
from gradstudio.core.unknown import is_known
from gradstudio.engine.operation_watcher import values_of
from gradstudio.session.library.requests import Request
from gradstudio.session.record.run import Run, Status
from gradstudio.session.record.run_writer import RunWriter
from gradstudio.session.record.watched_script import WatchedScript
from gradstudio.watching.births.passed_over import LONGEST, PassedOver
from gradstudio.watching.births.step_births import NO_BIRTH, Birth
from gradstudio.watching.hearing.rank_place import here
from gradstudio.watching.measuring.waiting_rows import most_waiting
from gradstudio.watching.recording.birth_lines import place_and_cause
from gradstudio.watching.recording.broken_update import born_in_update
from gradstudio.watching.recording.remote import Remote
from gradstudio.watching.script.script_names import module_called, name_of
from gradstudio.watching.steps.joined import kind_of, main_of, members_of
from gradstudio.watching.steps.measured_step import MeasuredStep
from gradstudio.watching.steps.script_facts import experiment_of, rate_of

if TYPE_CHECKING:
    from gradstudio.watching.ranks.joined_run import Collector, Sender
    from gradstudio.watching.steps.heard_steps import Observer

LONGEST_ID = 40  # characters of the script's name in the id of a run


@dataclass(frozen=True)
class Script:
    """The script that is watched."""

    path: Path | None
    arguments: tuple[str, ...] = ()
    name: str = ""

    @property
    def stem(self) -> str:
        """The name of the file as it can stand in an id."""
        stem = self.path.stem if self.path else ""
        return re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-")[:LONGEST_ID] or "watched"

    def digest(self) -> str:
        """Return the sha256 of the text; "" where it cannot be read."""
        try:
            return hashlib.sha256(self.path.read_bytes()).hexdigest() if self.path else ""
        except OSError:
            return ""


def running_script() -> Script:
    """Return the script that this process runs."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    return Script(Path(file) if file else None, tuple(sys.argv[1:]))


MOST_HELD = 20  # rows: a loss that is not finite for so long has diverged


class WatchedRun:
    """Makes the run with its first row: only then is known what can be read off."""

    def __init__(self, script: Script, layers: tuple[Layer, ...], observer: Observer) -> None:
        self._script, self.layers, self.observer = script, layers, observer
        self._every = observer.options.every  # steps from one row to the next
        stamp = time.strftime("%Y%m%d-%H%M%S")
        self.id = f"{script.stem}-{stamp}-{secrets.token_hex(4)}"
        self._run: Run | None = None
        self._rows: deque[MeasuredStep | Row] = deque()  # that wait to be recorded together
        self._most_waiting = most_waiting(len(layers))
        self._recording = threading.RLock()  # held while rows are recorded, as the library's thread does it too
        self.provenance: Provenance | None = None
        self.unknown = ""  # why it is not known, a sentence
        self.remote = Remote()
        self.passed_over = 0  # batches that were not finite and that the script went on without
        self.left_out = 0  # updates that the watch kept from the weights, as it was asked to
        self.harmless = 0  # steps whose loss alone was not finite
        self.spared = 0  # steps whose loss was not finite, and from which a loss scaler kept the weights
        self.birth = self._birth = self._held_birth = NO_BIRTH  # of the latest row, of the next one, of what is held
        self._held: list[MeasuredStep] = []
        self.news: MeasuredStep | Row | None = None  # row of which a birth is to be told now
        self._suspect: MeasuredStep | None = None  # the latest step, where its update broke weights and nothing else
        self.told_late: MeasuredStep | None = None  # the step that turned out to have done so once the next was made
        self._plays = False  # whether it was told that another training plays against it
        self._waiting: list[PassedOver] = []  # those before the first row
        self.early_findings: dict[str, Finding] = {}  # by rule, those before the first row
        self.has_begun = False
        self._steps = 0
        self._steps_before_stop = 0  # until another program asked to stop
        self._at_once = False  # whether the next row is recorded without the ones behind it
        self._factor = 1.0  # on the learning rate, by request
        self.joined: Sender | Collector | None = None  # where other ranks make this run too
        self._place = here()
        self._blame: Finding | None = None  # of ranks, for the next row that is not finite

    @property
    def recorded_id(self) -> str:
        """The id of the run in the library: of several ranks, that of rank 0."""
        return (self.joined.run if self.joined is not None else "") or self.id

    @property
    def is_recorded(self) -> bool:
        """Whether it is in the library by itself, and no part of the run of rank 0."""
        return self.joined is None or self.joined.is_recorded

    @property
    def run(self) -> Run | None:
        """The run with every row so far; None before the first."""
        self.gather()
        return self._run

    def gather(self) -> None:
        """Record the rows that wait, and those that another thread records by now. Any thread may call this."""
        with self._recording, np.errstate(all="ignore"):  # a script may have asked numpy to raise
            while self._rows:
                if plain := self._without_news():
                    columns = np.array([made.figures() for made in plain])
                    if self._every > 1:  # as in _counted
                        columns[:, 0] = len(self._writer.run.history) + np.arange(len(plain))
                    self._writer.append_finite(columns, np.stack([made.gradient.layers for made in plain], 1))
                    self._writer.look()
                    continue
                waits = self._rows.popleft()
                row = waits if isinstance(waits, Row) else waits.row()
                self._writer.record(self._counted(row) if self._every > 1 else row)

    def _without_news(self) -> list[MeasuredStep]:
        """Return the steps at the front that are no more than figures, and take them off. Recorded together they take
        a third of the time."""
        found: list[MeasuredStep] = []
        history = self._writer.run.history
        settings = history.settings[-1][1] if history.settings else None
        unused = history.unused[-1][1] if history.unused else ()
        while self._rows and isinstance(made := self._rows[0], MeasuredStep):
            if made.brings_news or made.settings != settings or made.unused not in (None, unused):
                break
            self._rows.popleft()
            found.append(made)
        return found

    def _counted(self, row: Row) -> Row:
        """Return a row as it stands in a run that has one of each `every`."""
        assert self._run is not None
        return replace(row, step=len(self._run.history))

    def begin(self, row: Row, titles: Counter[str]) -> Run:
        """Make the run, and return it. `titles` counts those of the runs before it in this process, and then its own
        too."""
        observer, script = self.observer, self._script
        assert row.settings is not None
        optimizer = observer.optimizer
        experiment = experiment_of(row.settings, main_of(optimizer), observer.micro_batches, row.scale)
        self._called = name_of(_of_all(observer)), name_of(optimizer)
        preset = Preset(id=script.stem, title=self._title(titles), experiment=experiment)
        source = WatchedScript(
            clean(script.path.name if script.path else ""), tuple(map(clean, script.arguments)), script.digest(),
            self._every, tuple((key, clean(value)) for key, value in self._facts(row)),
        )  # fmt: skip
        self._run, self.has_begun = Run(preset, experiment, id=self.id, watched=source), True
        self._writer = RunWriter(self._run)
        self._writer.begin(self.layers, self._environment())
        self._writer.set_status("running")
        if self.provenance is not None:  # of the very first pass
            self._writer.explain(self.provenance)
        for skipped in self._waiting:
            self._note_passed_over(skipped)
        for finding in self.early_findings.values():
            self._writer.find(finding)
        return self._run

    def _title(self, titles: Counter[str]) -> str:
        """Return what was asked for, or 'gan.py: Generator netG'; no other run of the process has it."""
        given = self.observer.name or self._script.name
        parts = [given] if given else [f"{self._script.path.name if self._script.path else 'Watched training'}:"]
        variable, optimizer = self._called
        if not given and (called := module_called(variable)) is not None:
            parts.append(f"{type(called).__name__} {variable}")
        elif not given:
            names = (f"{type(model).__name__} {name_of(model)}".strip() for model in self.observer.called)
            parts.append(", ".join(names))
        title = shortened(" ".join(filter(None, parts)).removesuffix(":"), LONGEST_TITLE - 20)
        if title in titles and optimizer:
            title = shortened(f"{title}, {optimizer}", LONGEST_TITLE - 6)
        return _not_taken(title, titles)

    def _facts(self, row: Row) -> list[tuple[str, str]]:
        """Return what was read off the script's training, as name and value."""
        observer, settings = self.observer, row.settings
        assert settings is not None
        optimizer = observer.optimizer
        numbers = plural(sum(layer.size for layer in self.layers), "number", "numbers")
        kinds = dict.fromkeys(map(_with_knobs, members_of(optimizer)))
        kind = " and ".join(type(model).__name__ for model in observer.called) or "not found"
        facts = [
            ("model", f"{kind}, {numbers} in {plural(len(observer.layers), 'tensor', 'tensors')}"),
            ("optimizer", " and ".join(kinds) or "none: updates by hand"),
            ("precision", settings.dtype + _scale_in_words(row.scale)),
            ("clipping", f"{settings.clipping} {settings.limit:g}" if settings.clipping != "none" else "none heard"),
        ]  # fmt: skip
        facts += [
            (f"{what} variable", name) for what, name in zip(("model", "optimizer"), self._called, strict=True) if name
        ]
        rates = [rate_of(each) for each in optimizer.param_groups] if optimizer else []
        if len(set(rates)) > 1 and all(map(is_known, rates)):
            told = f"{number(min(rates))} to {number(max(rates))} in {len(rates)} groups of parameters"
            facts.append(("learning rates", f"{told}; the curve shows the rate of the first"))
        facts += self._place.facts if self._place is not None else []
        if observer.micro_batches > 1:
            facts.append(("accumulation", f"{observer.micro_batches} backward passes a step"))
        return facts

    def _environment(self) -> dict[str, str]:
        device = self.observer.parameters.tensors[0].device
        return {
            "gradstudio": gradstudio.__version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "platform": _platform(),
            "device": str(device),
            "threads": str(torch.get_num_threads()),
        }

    def hear(self, request: Request) -> None:
        """Take what another program asks, in the thread that writes the library."""
        if self._run is None or self._run.over:
            return
        if request.word == "rate" and self._place is not None:
            self.note("the learning rate stays, as the other ranks would not know of another")
            return
        if request.word == "stop":
            self._steps_before_stop = self._steps
            self.note("the script was asked to stop")
        self.remote.hear(request, self.observer.thread)

    def before_step(self, optimizer: Optimizer) -> None:
        """Do what another program has asked for, and note it in the run."""
        if self._run is None:
            return
        remote = self.remote
        if remote.paused:
            self.note("the script was asked to pause")
            self._writer.set_status("paused")
            remote.wait()
            remote.stop_if_due()
            self._writer.set_status("running")
            self.note("the script goes on")
            self._at_once = True  # somebody looks
        remote.stop_if_due()
        if remote.factor != self._factor:
            self._factor = remote.factor
            told = f"learning rate × {number(remote.factor)} from here on, as was asked for"
            self.note(told, factor=remote.factor)
        remote.before_step(optimizer)

    def note(self, text: str, kind: Kind = "notice", factor: float | None = None) -> None:
        """Note an event behind the rows so far."""
        with self._recording:
            self.gather()
            self._writer.note(kind, text, value=factor)

    def find(self, finding: Finding) -> None:
        """Keep a finding that no row tells of."""
        if self._run is None:
            self.early_findings[finding.rule] = finding
            return
        with self._recording:
            self.gather()
            self._writer.find(finding)

    def take(self, made: MeasuredStep | Row) -> None:
        """Record the row of a step, one of each `every`: at once where it has news, else with the next ones, or when
        the library's thread looks. A row whose loss is not finite is held while a loss scaler keeps the weights from
        it: whether it is the beginning of a divergence is seen by the rows behind it."""
        assert self._run is not None
        index, self._steps = self._steps, self._steps + 1
        is_finite = isinstance(made, MeasuredStep) and made.is_finite  # of nearly all, so one look is enough
        broke = not is_finite and made.went_nonfinite
        self.news, self.birth, self._birth = None, self._birth, NO_BIRTH
        if self._suspect is not None and not broke:  # else the loss or the gradient tells of it
            self._diverge_in_weights(self._suspect)
        self._suspect = None
        self.left_out += isinstance(made, MeasuredStep) and made.left_out
        if broke and not self.has_diverged and isinstance(made, MeasuredStep) and self._may_be_harmless(made):
            self._hold(made)
            return
        if self._held:
            self._let_pass()
        if index % self._every and not broke:
            return
        if broke:
            self._keep(self.birth)
        self._rows.append(made)
        if not (is_finite or broke) and isinstance(made, MeasuredStep) and made.broke_weights:
            self._suspect = made
        if broke or made.skipped or self._at_once or len(self._rows) >= self._most_waiting:
            before = self.has_diverged
            self._at_once = False
            self.gather()
            if self.has_diverged and not before:
                self.news = made
                if self._blame is not None:
                    step = self._run.first_nonfinite_step or 0
                    self._writer.find(replace(self._blame, first_step=step, last_step=step))

    @property
    def has_diverged(self) -> bool:
        return self._run is not None and self._run.first_nonfinite_step is not None

    def _may_be_harmless(self, made: MeasuredStep) -> bool:
        born, _ = self.birth
        return made.spares_weights and (born is None or born.phase != "update")

    def _hold(self, made: MeasuredStep) -> None:
        """Wait with this row for what comes after it."""
        if not self._held:
            self._held_birth, self.news = self.birth, made
        self._held.append(made)
        if len(self._held) >= MOST_HELD:
            self._diverge()

    def _diverge(self) -> None:
        """Record the rows that are held as those of a run that has diverged at the first of them."""
        held, self._held = self._held, []
        self.birth, self.news = self._held_birth, held[0]
        self._keep(self.birth)
        self._rows.extend(held)
        self.gather()

    def _diverge_in_weights(self, made: MeasuredStep) -> None:
        """Hear that an update broke weights of which the next loss shows nothing."""
        if self.run is None or self.has_diverged:
            return
        observer = self.observer
        found = born_in_update(made, kind_of(observer.optimizer), observer.layers, observer.parameters.tensors)
        if found is None or not math.isfinite(self.run.history.value("weight_norm", 0)):
            return  # mended by now, or there from the beginning, and the script's own doing
        self.birth, self.news, self.told_late = (found, ""), made, made
        self.provenance = replace(found, step=len(self.run.history) - 1)
        self._writer.explain(self.provenance)
        self._writer.diverge_in_weights()

    def _let_pass(self) -> None:
        """Record the rows that are held as harmless: the training goes on."""
        assert self._run is not None
        held, self._held = self._held, []
        self.spared += sum(not (made.left_out or made.is_of_loss_alone) for made in held)
        self.harmless += sum(made.is_of_loss_alone for made in held)
        with self._recording:
            self.gather()
            step = len(self._run.history)
            self._rows.extend(replace(made.row(), harmless=True) for made in held)
            self.gather()
            count = len(held) if len(held) > 1 and not held[0].is_of_loss_alone else None
            self._writer.note("nan_batch", self._of_the_held(held, self._spoiled_buffer()), step, count)
            if held[0].is_of_loss_alone:
                self._writer.find(self._of_the_loss_alone(held[0], step))

    def _of_the_loss_alone(self, made: MeasuredStep, step: int) -> Finding:
        """Return the finding of a loss that is not finite and does no harm."""
        provenance, _ = self._held_birth
        told = (
            f"The loss of step {step:,} is {number(made.loss)}, while the norm of its gradient is "
            f"{number(made.gradient.norm)}; the weights are finite after it, and the training goes on."
        )
        if provenance is not None:
            told += f" It was {place_and_cause(provenance)}."
        lines = of_birth(provenance) if provenance is not None else None
        return heard_fault("harmless_loss", told, step, step, known=(lines or ("",))[0])

    def _of_the_held(self, held: list[MeasuredStep], spoiled: str) -> str:
        """Return what is said of these steps, and of a buffer that they have spoiled."""
        provenance, unknown = self._held_birth
        told = f"loss {number(held[0].loss)}" + f", {len(held)} steps" * (len(held) > 1)
        born = (
            place_and_cause(provenance)
            if provenance is not None
            else f"where it was born is not known: {unknown or 'nobody searched for it'}"
        )
        spoils = f"; its buffer {spoiled} holds NaN" * bool(spoiled)
        if held[0].is_of_loss_alone:
            return brief(f"{told}, with a gradient that is finite all the same{spoils}; {born}", LONGEST)
        by = "watch, as on_nonfinite='skip' asks" if held[0].left_out else "loss scaler"
        return brief(f"a batch was skipped by the {by}: {told}; no update was made{spoils}; {born}", LONGEST)

    def _spoiled_buffer(self) -> str:
        """Return the name of a buffer of the model that holds NaN, as a running mean does after a batch with one; ""
        without any. -Inf may be a mask."""
        for model in self.observer.models:
            for name, buffer in model.named_buffers():
                if buffer.is_floating_point() and values_of(buffer).nan:
                    return name
        return ""

    def pass_over(self, skipped: PassedOver) -> None:
        """Note a batch that the script went on without. It is no step, and the run has not diverged by it, unless its
        weights had."""
        self.passed_over += 1
        if self.run is None:
            self._waiting.append(skipped)
        else:
            self._note_passed_over(skipped)

    def _note_passed_over(self, skipped: PassedOver) -> None:
        assert self.run is not None
        found = skipped.provenance
        self._writer.note("nan_batch", skipped.event(place_and_cause(found) if found is not None else ""))
        if (
            found is not None
            and found.phase == "update"
            and len(self.run.history)
            and self.run.first_nonfinite_step is None
        ):
            self._keep((found, ""))
            self._writer.diverge_in_weights()

    def take_birth(self) -> Birth:
        """Return what was heard of the birth in the step that is being made, and forget it."""
        found, self._birth = self._birth, NO_BIRTH
        return found

    def blame(self, birth: Birth, finding: Finding | None) -> None:
        """Hear where a value was born that is not finite in the next row, and which ranks brought it."""
        self._birth, self._blame = birth, finding

    def explain(self, provenance: Provenance | None, unknown: str) -> None:
        """Hear where the first value was born that is not finite in the step that is being made, or why that is
        unknown."""
        known, why = self._birth
        self._birth = known or provenance, why or unknown

    def keep_birth(self) -> None:
        """Keep what was heard of a step that becomes no row."""
        self.birth, self._birth = self._birth, NO_BIRTH
        self._keep(self.birth)

    def _keep(self, birth: Birth) -> None:
        """Keep the birth of a divergence. What a later step says is no birth."""
        if self.has_diverged:
            return
        provenance, self.unknown = birth
        if self.provenance is None and provenance is not None:
            step = len(self.run.history) if self.run is not None else 0
            self.provenance = provenance = replace(provenance, step=step)
            if self.run is not None:
                self._writer.explain(provenance)

    def plays_against(self) -> None:
        """Hear that this training and another one play against each other, as in a GAN."""
        if self._plays:
            return
        self._plays = True
        with self._recording:
            self.gather()
            self._writer.need_not_fall(
                "its loss need not fall: of two optimizers, one throws away what the other's backward pass leaves in "
                "its gradients, as in a GAN"
            )

    @property
    def _was_stopped(self) -> bool:
        """Whether the script took the interruption that another program asked for, and tidied up, rather than go on to
        its own end. The step that was being made by then may still have become a row."""
        remote = self.remote
        return remote.stopped and not remote.stop_is_due and self._steps - self._steps_before_stop <= 1

    def end(self, status: Status, message: str) -> None:
        """Say how the run ended."""
        self.news = None
        if self.run is None or self.run.over:
            return
        if self._held:
            self._diverge()
        elif self._birth[0] is not None:
            self.keep_birth()
        elif self._suspect is not None:
            self._diverge_in_weights(self._suspect)
        if status == "finished" and self.run.first_nonfinite_step is not None:
            status = "nonfinite"
        elif status == "finished" and self._was_stopped:
            status = "stopped"
        self._writer.end(status, message, None)


def _of_all(observer: Observer) -> nn.Module | None:
    """Return the model that has all parameters which are trained; None where none has."""
    if len(models := observer.called) != 1:
        return None
    own = {id(tensor) for tensor in models[0].parameters()}
    return models[0] if own.issuperset(map(id, observer.parameters.tensors)) else None


def _with_knobs(optimizer: Optimizer) -> str:
    """Return 'SGD(lr=0.1)'."""
    group = optimizer.param_groups[0]
    shown = [f"{key}={group[key]}" for key in ("lr", "momentum", "betas", "weight_decay") if group.get(key)]
    return f"{type(optimizer).__name__}({', '.join(shown)})"


def _scale_in_words(scale: float) -> str:
    """Return the loss scale as it follows the number format; "" for none."""
    if not is_known(scale):
        return ", several loss scales in a step"
    return f", loss scale {number(scale)}" if scale != 1 else ""


def _platform() -> str:
    """Return the operating system. `platform.platform` starts a program for that, of which a script may hear, and makes
    Python forget which warnings it has shown."""
    found = platform.uname()
    return f"{found.system}-{found.release}-{found.machine}"


def _not_taken(title: str, titles: Counter[str]) -> str:
    """Return a title with a number behind it where others have it already, and count it among them."""
    own = title
    while own in titles:
        titles[title] += 1
        own = f"{title} ({titles[title]})"
    titles[own] += 1
    return own

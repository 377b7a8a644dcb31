"""The run of one observer: its rows are recorded and judged, and the news of each step is returned."""

from __future__ import annotations

import math
import secrets
import threading
import time
from collections import Counter, deque
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from torch.optim import Optimizer

from gradstudio.core import plugins
from gradstudio.core.columns import COLUMNS
from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.events import Kind
from gradstudio.core.presets import Preset
from gradstudio.core.provenance import Provenance
from gradstudio.core.row import Layer, Logged
from gradstudio.core.text import clean, number
from gradstudio.engine.gauges import added_gauges
from gradstudio.session.files import gate
from gradstudio.session.library.requests import Request
from gradstudio.session.record.going_on import going_on
from gradstudio.session.record.own_steps import own_step
from gradstudio.session.record.ranked_findings import as_shown
from gradstudio.session.record.run import Run, Status
from gradstudio.session.record.run_writer import RunWriter
from gradstudio.session.record.watched_script import WatchedScript
from gradstudio.session.running.slow_step import TIMES, longest_step
from gradstudio.watching.births.skipped_batches import SkippedBatch
from gradstudio.watching.births.step_births import NO_BIRTH, Birth
from gradstudio.watching.hooks.rank_place import here
from gradstudio.watching.measuring.waiting_rows import most_waiting
from gradstudio.watching.recording import harmless_steps, run_facts
from gradstudio.watching.recording.birth_lines import place_and_cause
from gradstudio.watching.recording.broken_update import born_in_update
from gradstudio.watching.recording.messenger import Messenger, tellers_of
from gradstudio.watching.recording.remote import Remote
from gradstudio.watching.recording.run_facts import Script
from gradstudio.watching.steps.joined_optimizers import kind_of, main_of
from gradstudio.watching.steps.measured_step import MeasuredStep
from gradstudio.watching.steps.script_facts import experiment_of

if TYPE_CHECKING:
    from gradstudio.watching.ranks.joined_run import Collector, Sender
    from gradstudio.watching.steps.step_observer import Observer

STALLED = 60.0  # seconds without a step, at least, that are worth a message
MOST_HELD = 20  # number of rows: a loss that is non-finite for so long has diverged


class Outcome(NamedTuple):
    """The effect of a step. `broken`: the step to report as non-finite now, with its birth; `said`: the report before
    that, about steps that turned out to be harmless."""

    has_diverged: bool
    broken: MeasuredStep | None = None
    said: str = ""


class WatchedRun:
    """Creates the run with its first row: only then the facts are known."""

    def __init__(
        self, script: Script, layers: tuple[Layer, ...], observer: Observer, parent: Run | None = None
    ) -> None:
        """`parent`: the run that is resumed by this one."""
        self._parent = parent
        self._script, self.layers, self.observer = script, layers, observer
        self._every = observer.options.every  # steps from one row to the next
        self.id = f"{script.stem}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}"
        self._run: Run | None = None
        self._rows: deque[MeasuredStep] = deque()  # waiting to be recorded together
        self._most_waiting = most_waiting(len(layers))
        self._recording = threading.RLock()  # locked while rows are recorded, as the library's thread records too
        self.provenance: Provenance | None = None
        self.unknown = ""  # why it is unknown, a sentence
        self.remote = Remote()
        self.skipped_batches = 0  # non-finite batches that the script skipped
        self.left_out = 0  # updates that the watch suppressed on request
        self.spikes = 0  # updates that were suppressed for their gradient norm
        self.harmless = 0  # steps with only a non-finite loss
        self.spared = 0  # steps with a non-finite loss from which a loss scaler protected the weights
        self.offset = self._first = 0  # the script's own number of the first step, and the observer's
        self._rows_before = 0  # the run resumed by this one
        self._messenger: Messenger | None = None
        self._latest, self._has_stalled = time.monotonic(), False  # when the latest step was made
        self._held: list[MeasuredStep] = []
        self._of_harmless = NO_BIRTH  # of the first harmless non-finite loss
        self._first_harmless: int | None = None  # its step
        self._suspect: MeasuredStep | None = None  # the latest step, if its update broke weights and nothing else
        self._plays = False  # whether another training that plays against it was reported
        self._waiting: list[SkippedBatch] = []  # those before the first row
        self.early_findings: dict[str, Finding] = {}  # by rule, those before the first row
        self.has_begun = False
        self.crash: Path | None = None  # its crash file
        self.crash_unknown = ""  # why that cannot be replayed, a clause
        self.crash_kinds: set[str] = set()  # number of files written
        self.crash_due: tuple[str, str] | None = None  # reason and kind of one that waits for the script's thread
        self.thread = 0  # that of the script
        self._criticals = 0  # findings of that kind
        self._steps = 0
        self._steps_before_stop = 0  # until another program asked to stop
        self._at_once = False  # whether the next row is recorded without the later ones
        self._factor = 1.0  # on the learning rate, by request
        self.joined: Sender | Collector | None = None  # if other ranks take part in this run
        self._place = here()

    @property
    def recorded_id(self) -> str:
        """The id of the run in the library: with several ranks, that of rank 0."""
        return (self.joined.run if self.joined is not None else "") or self.id

    @property
    def is_recorded(self) -> bool:
        """Whether it is in the library separately, rather than as part of the run of rank 0."""
        return self.joined is None or self.joined.is_recorded

    @property
    def run(self) -> Run | None:
        """The run with every row so far; None before the first."""
        self.gather()
        return self._run

    @property
    def crash_line(self) -> str:
        """The location of its crash file, in a line."""
        what = "fixes` tries fixes on it" if not self.crash_unknown else "show` says what is in it"
        return f"  file     {self.crash}; `gradstudio crash {what}"

    @property
    def new_critical(self) -> str:
        """The title of a critical finding by the rules since the last call; "" if there is none."""
        findings = () if self._run is None else self._run.findings.values()
        titles = [each.title for each in findings if each.severity == "critical"]
        is_new, self._criticals = len(titles) > self._criticals, len(titles)
        return titles[-1] if is_new else ""

    @property
    def has_diverged(self) -> bool:
        return self._run is not None and self._run.first_nonfinite_step is not None

    def begin(self, made: MeasuredStep, titles: Counter[str]) -> Run:
        """Create the run, and return it. `titles` counts the titles of earlier runs in this process, and then its
        own."""
        observer, script = self.observer, self._script
        experiment = experiment_of(made.settings, main_of(observer.optimizer), observer.micro_batches, made.scale)
        called = run_facts.names_in_script(observer)
        title = run_facts.title_of(observer, script, called, titles)
        facts = run_facts.facts_of(observer, made, self.layers, called, self._place)
        source = WatchedScript(
            clean(script.path.name if script.path else ""), tuple(map(clean, script.arguments)), script.digest(),
            self._every, tuple((key, clean(value)) for key, value in facts),
        )  # fmt: skip
        preset = Preset(id=script.stem, title=title, experiment=experiment)
        self._run = run = Run(preset, experiment, id=self.id, watched=source)
        if self._parent is not None:
            self._run = run = going_on(run, self._parent, observer.told.step)
            self._rows_before, self.offset = run.parent_step, own_step(run.history, run.parent_step)
        self.has_begun, self._first = True, made.step
        self._take_own_step()
        if tellers := tellers_of(observer.options.on_finding, observer.options.to):
            self._messenger = Messenger(tellers)
        self._writer = RunWriter(run)
        self._writer.on_finding = self._on_finding
        if run.parent:
            self._writer.take_rows_before(run_facts.environment_of(observer))
        else:
            self._writer.begin(self.layers, run_facts.environment_of(observer))
        self._writer.set_status("running")
        if self.provenance is not None:  # of the very first pass
            self._writer.explain(self.provenance)
        for skipped in self._waiting:
            self._note_skipped_batch(skipped)
        for finding in self.early_findings.values():
            self._writer.find(finding)
        return self._run

    # ---- rows

    def gather(self) -> None:
        """Record the waiting rows, and those that another thread is recording. Any thread may call this."""
        with self._recording, np.errstate(all="ignore"):  # a script may have configured numpy to raise
            while self._rows:
                if not plugins.names("columns") and (plain := self._without_news()):
                    columns = np.array([measured_step.figures() for measured_step in plain])
                    if self._every > 1:
                        columns[:, 0] = len(self._writer.run.history) - self._rows_before + np.arange(len(plain))
                    columns[:, 0] += self.offset - (self._first if self._every == 1 else 0)
                    self._writer.append_finite(columns, np.stack([made.gradient.layers for made in plain], 1))
                    self._writer.look()
                else:
                    self._record(self._rows.popleft())

    def _record(self, made: MeasuredStep, *, harmless: bool = False) -> None:
        row, count = made.row(), len(self._writer.run.history)
        step = count - self._rows_before + self.offset if self._every > 1 else self.own_step(made.step)
        figures: dict[str, Any] = {name: value for name, value in made.told if name in COLUMNS}
        logged = tuple(Logged(count, name, value) for name, value in made.told if name not in COLUMNS)
        self._writer.record(replace(row, step=step, harmless=harmless, logged=logged, **figures))

    def _without_news(self) -> list[MeasuredStep]:
        """Return the steps at the front that consist of figures only, and remove them. Recorded together they take a
        third of the time."""
        measured_steps: list[MeasuredStep] = []
        history = self._writer.run.history
        settings = history.settings[-1][1] if history.settings else None
        unused = history.unused[-1][1] if history.unused else ()
        while self._rows:
            measured_step = self._rows[0]
            if (
                measured_step.brings_news
                or measured_step.settings != settings
                or measured_step.unused not in (None, unused)
            ):
                break
            measured_steps.append(self._rows.popleft())
        return measured_steps

    def take(self, made: MeasuredStep) -> Outcome:
        """Record the row of a step, one of each `every`: immediately if it has news, otherwise with the next ones, or
        when the library's thread looks. A row with a non-finite loss is held back while a loss scaler protects the
        weights from it: later rows show whether it is the beginning of a divergence."""
        assert self._run is not None
        self._take_own_step()
        index, self._steps = self._steps, self._steps + 1
        self._latest, self._has_stalled = time.monotonic(), False
        is_finite = made.is_finite  # for nearly all, so one check is enough
        broke = not is_finite and made.went_nonfinite
        late = None if broke or self._suspect is None else self._diverge_in_weights(self._suspect)
        self._suspect = None
        self.left_out += made.left_out
        if made.spike:
            self.spikes += 1
            self.note(made.spike)
        if broke and not self.has_diverged and _may_be_harmless(made):
            return self._hold(made)
        said = self._accept_as_harmless() if self._held else ""
        if index % self._every and not broke:
            return Outcome(self.has_diverged, late, said)
        if broke:
            self.keep(made.birth)
        figures = self.observer.told.take()
        if plugins.names("gauges") and len(models := self.observer.models_in_script) == 1:
            figures += added_gauges.measure(models[0], made.step)
        if figures:
            made = made._replace(told=figures)
        self._rows.append(made)
        if not (is_finite or broke) and made.broke_weights:
            self._suspect = made
        before = self.has_diverged
        if broke or made.skipped or self._at_once or len(self._rows) >= self._most_waiting:
            self._at_once = False
            self.gather()
        if self.has_diverged and not before:
            late = made
            if made.blame is not None:
                step = self._run.first_nonfinite_step or 0
                self._writer.find(replace(made.blame, first_step=step, last_step=step))
        return Outcome(self.has_diverged, made if made.left_out and self.left_out == 1 else late, said)

    @property
    def _was_reported(self) -> bool:
        """Whether a step was reported that turned out to be harmless: later ones are only events."""
        return self.spared + self.harmless > 0

    def _hold(self, measured_step: MeasuredStep) -> Outcome:
        """Hold this row back until the next ones are known."""
        self._held.append(measured_step)
        raises = self.observer.options.on_nonfinite == "raise"
        if len(self._held) >= MOST_HELD:
            first, is_new = self._held[0], self._was_reported or raises
            self._diverge()
            return Outcome(True, first if is_new else None)
        is_new = (
            self.left_out == 1
            if measured_step.left_out
            else len(self._held) == 1 and (raises or not self._was_reported)
        )
        return Outcome(False, measured_step if is_new else None)

    def _diverge(self) -> None:
        """Record the rows held back as those of a run that has diverged at the first of them."""
        measured_steps, self._held = self._held, []
        self.keep(measured_steps[0].birth if measured_steps[0].birth[0] is not None else self._of_harmless)
        self._rows.extend(measured_steps)
        self.gather()

    def _diverge_in_weights(self, measured_step: MeasuredStep) -> MeasuredStep | None:
        """Record that an update broke weights though the next loss does not show it. Return the step with that
        birth."""
        if self.run is None or self.has_diverged:
            return None
        observer = self.observer
        birth = born_in_update(measured_step, kind_of(observer.optimizer), observer.layers, observer.parameters.tensors)
        if birth is None or not math.isfinite(self.run.history.value("weight_norm", 0)):
            return None  # corrected by now, or there from the beginning, and the script's own doing
        self.provenance = replace(birth, step=len(self.run.history) - 1)
        self._writer.explain(self.provenance)
        self._writer.diverge_in_weights()
        return measured_step._replace(birth=(birth, ""))

    def _accept_as_harmless(self) -> str:
        """Record the rows held back as harmless: the training continues. Return the report about the first of them."""
        assert self._run is not None
        measured_steps, self._held = self._held, []
        of_loss = sum(measured_step.is_of_loss_alone for measured_step in measured_steps)
        spared = sum(not (made.left_out or made.is_of_loss_alone) for made in measured_steps)
        said = harmless_steps.report_line(spared if not self.spared else 0, of_loss if not self.harmless else 0)
        self.spared, self.harmless = self.spared + spared, self.harmless + of_loss
        with self._recording:
            self.gather()
            step, first = len(self._run.history), measured_steps[0]
            for made in measured_steps:
                self._record(made, harmless=True)
            count = len(measured_steps) if len(measured_steps) > 1 and not first.is_of_loss_alone else None
            self._writer.note("nan_batch", harmless_steps.event(measured_steps, self.observer.models), step, count)
            if first.is_of_loss_alone:
                self._of_harmless = self._of_harmless if self._of_harmless[0] is not None else first.birth
                self._first_harmless = step if self._first_harmless is None else self._first_harmless
                finding = harmless_steps.of_the_loss_alone(
                    first, self._of_harmless, self._first_harmless, step, self.harmless
                )
                self._writer.find(finding)
        return said

    def own_step(self, step: int) -> int:
        """Return the script's own number of a step of the observer."""
        return step - self._first + self.offset

    def row_of(self, step: int) -> int:
        """Return the row of a step of the observer, if each step is a row."""
        return step - self._first + self._rows_before

    def _take_own_step(self) -> None:
        """Continue counting from the number that the script has given its next step."""
        own, self.observer.told.step = self.observer.told.step, None
        if own is None or own // self._every == self._steps // self._every + self.offset:
            return
        self.gather()  # the earlier rows keep their numbers
        self.offset = own // self._every - self._steps // self._every

    def look(self) -> None:
        """Add the waiting rows, and report a step that does not end. The library's thread calls this."""
        self.gather()
        run, seconds = self._run, time.monotonic() - self._latest
        if run is None or self._messenger is None or self._has_stalled or run.status != "running" or not run.own:
            return
        if seconds > max(STALLED, TIMES * longest_step(run)):
            self._has_stalled = True
            step = len(run.history) - 1
            title = f"No step for {seconds:,.0f} s"
            self._writer.note("notice", title)
            evidence = f"The longest of the latest steps took {number(longest_step(run))} s."
            meaning = "The script evaluates or saves, waits for data or for another process, or hangs."
            self._messenger.tell(Finding("stalled", "warning", title, step, step, (), evidence, meaning, ()))

    # ---- news that no row contains

    def note(self, text: str, kind: Kind = "notice", factor: float | None = None) -> None:
        """Record an event after the rows so far."""
        with self._recording:
            self.gather()
            self._writer.note(kind, text, value=factor)

    def find(self, finding: Finding) -> None:
        """Store a finding that does not come from a row."""
        if self._run is None:
            self.early_findings[finding.rule] = finding
            return
        with self._recording:
            self.gather()
            self._writer.find(finding)

    def _on_finding(self, finding: Finding) -> None:
        """Handle a finding that is new or has become worse: the script may have to end."""
        assert self._run is not None
        if self._messenger is not None and self.is_recorded:
            self._messenger.tell(as_shown(finding, self._run))
        bar = self.observer.options.stop_on
        if bar and not self.remote.exit_code and (code := gate.exit_code([self._run], bar)):
            self._steps_before_stop = self._steps
            self._writer.note("notice", f"the script was stopped, as asked for: {finding.title}")
            self.remote.end_script(code)

    def skip_batches(self, skipped: SkippedBatch) -> None:
        """Record a batch that the script skipped. It is not a step, and the run has not diverged by it, unless its
        weights had."""
        self.skipped_batches += 1
        if self.run is None:
            self._waiting.append(skipped)
        else:
            self._note_skipped_batch(skipped)

    def _note_skipped_batch(self, skipped: SkippedBatch) -> None:
        assert self.run is not None
        birth = skipped.provenance
        self._writer.note("nan_batch", skipped.event(place_and_cause(birth) if birth is not None else ""))
        if birth is not None and birth.phase == "update" and len(self.run.history) and not self.has_diverged:
            self.keep((birth, ""))
            self._writer.diverge_in_weights()

    def keep(self, birth: Birth) -> None:
        """Store the birth of a divergence. Later steps do not replace it."""
        if self.has_diverged:
            return
        provenance, self.unknown = birth
        if self.provenance is None and provenance is not None:
            step = len(self.run.history) if self.run is not None else 0
            self.provenance = provenance = replace(provenance, step=step)
            if self.run is not None:
                self._writer.explain(provenance)

    def has_reward(self) -> None:
        """Record that the script logs a reward: its loss need not fall."""
        if not self._plays and self._run is not None:
            self._plays = True
            with self._recording:
                self.gather()
                self._writer.need_not_fall("its loss need not fall: the script tells a reward")

    def plays_against(self) -> None:
        """Record that this training and another one play against each other, as in a GAN."""
        if self._plays:
            return
        self._plays = True
        with self._recording:
            self.gather()
            self._writer.need_not_fall(
                "its loss need not fall: of two optimizers, one throws away what the other's backward pass leaves in "
                "its gradients, as in a GAN"
            )

    # ---- requests of other programs

    def on_request(self, request: Request) -> None:
        """Record a request of another program, on the thread that writes the library."""
        if self._run is None or self._run.over:
            return
        if request.word == "rate" and self._place is not None:
            self.note("the learning rate stays, as the other ranks would not know of another")
            return
        if request.word == "stop":
            self._steps_before_stop = self._steps
            self.note("the script was asked to stop")
        self.remote.on_request(request, self.observer.thread)

    def before_step(self, optimizer: Optimizer) -> None:
        """Carry out the requests of other programs, and record them in the run."""
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
            self._at_once = True  # the run is being viewed
        remote.stop_if_due()
        if remote.factor != self._factor:
            self._factor = remote.factor
            text = f"learning rate × {number(remote.factor)} from here on, as was asked for"
            self.note(text, factor=remote.factor)
        remote.before_step(optimizer)

    @property
    def _was_stopped(self) -> bool:
        """Whether the script was interrupted at the request of another program and tidied up, rather than reaching its
        own end. The current step may still have become a row."""
        remote = self.remote
        return remote.stopped and not remote.stop_is_due and self._steps - self._steps_before_stop <= 1

    def end(self, status: Status, message: str) -> Outcome:
        """Record how the run ended."""
        late: MeasuredStep | None = None
        if self.run is None or self.run.over:
            return Outcome(self.has_diverged)
        if self._held and status == "finished" and self._was_reported:
            self._accept_as_harmless()  # it continued after such steps before
        elif self._held:
            self._diverge()
        elif self._suspect is not None:
            late = self._diverge_in_weights(self._suspect)
        if status == "finished" and self.has_diverged:
            status = "nonfinite"
        elif status == "finished" and self._was_stopped:
            status = "stopped"
        accuracy, history = None, self.run.history
        for name, value in self.observer.told.take() if len(history) else ():  # after the last row
            if name not in COLUMNS:
                history.logged.append(Logged(len(history) - 1, name, value))
            elif name == "test_accuracy":
                accuracy = value
        self._writer.end(status, message, accuracy)
        if self._messenger is not None:
            self._messenger.close()
        return Outcome(self.has_diverged, late)


def _may_be_harmless(measured_step: MeasuredStep) -> bool:
    birth, _ = measured_step.birth
    return measured_step.spares_weights and (birth is None or birth.phase != "update")

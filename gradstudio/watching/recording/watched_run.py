"""The run of one observer: its rows are recorded and judged, and the news of each step is returned."""

from __future__ import annotations

import math
import secrets
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from torch.optim import Optimizer

from gradstudio.core import plugins
from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.events import Kind
from gradstudio.core.provenance import Provenance
from gradstudio.core.row import Layer
from gradstudio.engine.gauges import added_gauges
from gradstudio.session.files import gate
from gradstudio.session.library.requests import Request
from gradstudio.session.record.extended_run import extended_run
from gradstudio.session.record.own_steps import own_step
from gradstudio.session.record.ranked_findings import as_shown
from gradstudio.session.record.run import Run, Status
from gradstudio.session.record.run_writer import RunWriter
from gradstudio.watching.births.skipped_batches import SkippedBatch
from gradstudio.watching.births.step_births import Birth
from gradstudio.watching.hooks.rank_place import current_place
from gradstudio.watching.recording import run_facts
from gradstudio.watching.recording.birth_lines import place_and_cause
from gradstudio.watching.recording.broken_update import born_in_update
from gradstudio.watching.recording.crash_files import CrashFiles
from gradstudio.watching.recording.harmless_steps import MOST_HELD, HeldSteps
from gradstudio.watching.recording.messenger import Messenger, tellers_of
from gradstudio.watching.recording.remote import Remote
from gradstudio.watching.recording.row_queue import RowQueue
from gradstudio.watching.recording.run_facts import Script
from gradstudio.watching.recording.stall import stall_of
from gradstudio.watching.recording.step_numbers import StepNumbers
from gradstudio.watching.steps.joined_optimizers import kind_of
from gradstudio.watching.steps.measured_step import MeasuredStep

if TYPE_CHECKING:
    from gradstudio.watching.ranks.joined_run import Collector, Sender
    from gradstudio.watching.steps.step_observer import Observer


class Outcome(NamedTuple):
    """The effect of a step. `broken`: the step to report as non-finite now, with its birth; `said`: the report before
    that, about steps that turned out to be harmless."""

    has_diverged: bool
    broken: MeasuredStep | None = None
    said: str = ""


class WatchedRun:
    """The record of a watched run. It is created with its first row, as its facts are not known before."""

    def __init__(
        self, script: Script, layers: tuple[Layer, ...], observer: Observer, library: Path, parent: Run | None = None
    ) -> None:
        """`library` is where the run is recorded; `parent`: the run that is resumed by this one."""
        self._script, self.layers, self.observer, self._parent = script, layers, observer, parent
        self.id = f"{script.stem}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}"
        self.numbers = StepNumbers(observer.options.every)
        self.remote = Remote()
        self.held = HeldSteps()
        self.crash = CrashFiles(observer, library, script.path, lambda: self.recorded_id)
        self.joined: Sender | Collector | None = None  # if other ranks take part in this run
        self._place = current_place()
        self._run: Run | None = None
        self._messenger: Messenger | None = None
        self._latest, self._has_stalled = time.monotonic(), False  # when the latest step was made
        self._waiting: list[SkippedBatch] = []  # those before the first row
        self.early_findings: dict[str, Finding] = {}  # by rule, those before the first row
        self.has_begun = False
        self.provenance: Provenance | None = None
        self.unknown = ""  # why it is unknown, a sentence
        self._suspect: MeasuredStep | None = None  # the latest step, if its update broke weights and nothing else
        self.skipped_batches = 0  # non-finite batches that the script skipped
        self.left_out = 0  # updates that the watch suppressed on request
        self.spikes = 0  # updates that were suppressed for their gradient norm
        self._criticals = 0  # findings of that kind
        self._need_not_fall = False  # whether that was recorded
        self._at_once = False  # whether the next row is recorded without the later ones

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
        observer, script, numbers = self.observer, self._script, self.numbers
        run = run_facts.new_run(self.id, observer, script, made, self.layers, self._place, titles)
        if self._parent is not None:
            run = extended_run(run, self._parent, observer.told.step)
            numbers.rows_before, numbers.offset = run.parent_step, own_step(run.history, run.parent_step)
        numbers.first = made.step
        if tellers := tellers_of(observer.options.on_finding, observer.options.to):
            self._messenger = Messenger(tellers)
        self._writer = RunWriter(run)
        self._writer.on_finding = self._on_finding
        self._rows = RowQueue(self._writer, numbers, len(self.layers))
        self._run, self.has_begun = run, True
        self._take_own_step()
        environment = run_facts.environment_of(observer)
        self._writer.take_rows_before(environment) if run.parent else self._writer.begin(self.layers, environment)
        self._writer.set_status("running")
        if self.provenance is not None:  # of the very first pass
            self._writer.explain(self.provenance)
        self._note_skipped_batches()
        for finding in self.early_findings.values():
            self._writer.find(finding)
        return run

    # ---- steps

    def gather(self) -> None:
        """Record the waiting rows. Any thread may call this."""
        if self._run is not None:
            self._rows.gather()

    def take(self, made: MeasuredStep) -> Outcome:
        """Record the row of a step, one of each `every`: immediately if it has news, otherwise with the next ones, or
        when the library's thread looks. A row with a non-finite loss is held back while a loss scaler protects the
        weights from it: later rows show whether it is the beginning of a divergence."""
        assert self._run is not None
        if self.observer.told.step is not None:
            self._take_own_step()
        numbers = self.numbers
        index, numbers.count = numbers.count, numbers.count + 1
        self._latest, self._has_stalled = time.monotonic(), False
        is_finite = made.is_finite  # for nearly all, so one check is enough
        broke = not is_finite and made.went_nonfinite
        late = None if broke or self._suspect is None else self._diverge_in_weights(self._suspect)
        self._suspect = None
        self.left_out += made.left_out
        if made.spike:
            self.spikes += 1
            self.note(made.spike)
        if broke and not self.has_diverged and self.held.may_be_harmless(made):
            return self._hold(made)
        said = self._accept_as_harmless() if self.held.steps else ""
        if index % numbers.every and not broke:
            return Outcome(self.has_diverged, late, said)
        if broke:
            self.keep(made.birth)
        made = self._with_figures(made)
        self._rows.append(made)
        if not (is_finite or broke) and made.broke_weights:
            self._suspect = made
        before = self.has_diverged
        if broke or made.skipped or self._at_once or self._rows.is_full:
            self._at_once = False
            self._rows.gather()
        if self.has_diverged and not before:
            late = made
            if made.blame is not None:
                step = self._run.first_nonfinite_step or 0
                self._writer.find(replace(made.blame, first_step=step, last_step=step))
        return Outcome(self.has_diverged, made if made.left_out and self.left_out == 1 else late, said)

    def _with_figures(self, made: MeasuredStep) -> MeasuredStep:
        """Return a step with the script's own figures, and those of plug-ins."""
        figures = self.observer.told.take()
        if plugins.names("gauges") and len(models := self.observer.models_in_script) == 1:
            figures += added_gauges.measure(models[0], made.step)
        return made._replace(told=figures) if figures else made

    def _take_own_step(self) -> None:
        """Continue counting from the number that the script has given its next step."""
        own, self.observer.told.step = self.observer.told.step, None
        if own is not None and (offset := self.numbers.offset_for(own)) != self.numbers.offset:
            self._rows.gather()  # the earlier rows keep their numbers
            self.numbers.offset = offset

    def look(self) -> None:
        """Add the waiting rows, and report a step that does not end. The library's thread calls this."""
        self.gather()
        if self._run is None or self._messenger is None or self._has_stalled:
            return
        if (finding := stall_of(self._run, time.monotonic() - self._latest)) is not None:
            self._has_stalled = True
            self._writer.note("notice", finding.title)
            self._messenger.tell(finding)

    # ---- steps that are not finite

    def _hold(self, made: MeasuredStep) -> Outcome:
        """Hold this row back until the next ones are known."""
        held, raises = self.held, self.observer.options.on_nonfinite == "raise"
        held.steps.append(made)
        if len(held.steps) >= MOST_HELD:
            first, is_new = held.steps[0], raises or held.were_reported
            self._diverge()
            return Outcome(True, first if is_new else None)
        is_first = len(held.steps) == 1 and (raises or not held.were_reported)
        is_new = self.left_out == 1 if made.left_out else is_first
        return Outcome(False, made if is_new else None)

    def _diverge(self) -> None:
        """Record the rows held back as those of a run that has diverged at the first of them."""
        self.keep(self.held.birth)
        self._rows.extend(self.held.release())
        self._rows.gather()

    def _diverge_in_weights(self, made: MeasuredStep) -> MeasuredStep | None:
        """Record that an update broke weights though the next loss does not show it. Return the step with that
        birth."""
        if self.run is None or self.has_diverged:
            return None
        observer = self.observer
        birth = born_in_update(made, kind_of(observer.optimizer), observer.layers, observer.parameters.tensors)
        if birth is None or not math.isfinite(self.run.history.value("weight_norm", 0)):
            return None  # corrected by now, or there from the beginning, and the script's own doing
        self.provenance = replace(birth, step=len(self.run.history) - 1)
        self._writer.explain(self.provenance)
        self._writer.diverge_in_weights()
        return made._replace(birth=(birth, ""))

    def _accept_as_harmless(self) -> str:
        """Record the rows held back as harmless: the training continues. Return the report about the first of them."""
        steps = self.held.release()
        with self._rows.recorded() as writer:
            row = len(writer.run.history)
            for made in steps:
                self._rows.record(made, harmless=True)
            harmless = self.held.accept(steps, self.observer.models, row)
            writer.note("nan_batch", harmless.event, row, harmless.steps)
            if harmless.finding is not None:
                writer.find(harmless.finding)
        return harmless.said

    def skip_batches(self, skipped: SkippedBatch) -> None:
        """Record a batch that the script skipped. It is not a step, and the run has not diverged by it, unless its
        weights had."""
        self.skipped_batches += 1
        self._waiting.append(skipped)
        self._note_skipped_batches()

    def _note_skipped_batches(self) -> None:
        while self.run is not None and self._waiting:
            birth = self._waiting[0].provenance
            self._writer.note("nan_batch", self._waiting.pop(0).event(place_and_cause(birth) if birth else ""))
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

    # ---- news that no row contains

    def note(self, text: str, kind: Kind = "notice", factor: float | None = None) -> None:
        """Record an event after the rows so far."""
        with self._rows.recorded() as writer:
            writer.note(kind, text, value=factor)

    def find(self, finding: Finding) -> None:
        """Store a finding that does not come from a row."""
        if self._run is None:
            self.early_findings[finding.rule] = finding
            return
        with self._rows.recorded() as writer:
            writer.find(finding)

    def need_not_fall(self, why: str) -> None:
        """Record once, in a run that has begun, why its loss need not fall."""
        if not self._need_not_fall and self._run is not None:
            self._need_not_fall = True
            with self._rows.recorded() as writer:
                writer.need_not_fall(f"its loss need not fall: {why}")

    def _on_finding(self, finding: Finding) -> None:
        """Handle a finding that is new or has become worse: the script may have to end."""
        assert self._run is not None
        if self._messenger is not None and self.is_recorded:
            self._messenger.tell(as_shown(finding, self._run))
        bar = self.observer.options.stop_on
        if bar and not self.remote.exit_code and (code := gate.exit_code([self._run], bar)):
            self._writer.note("notice", f"the script was stopped, as asked for: {finding.title}")
            self.remote.end_script(code, self.numbers.count)

    # ---- requests of other programs

    def on_request(self, request: Request) -> None:
        """Record a request of another program, on the thread that writes the library."""
        if self._run is None or self._run.over:
            return
        if request.word == "rate" and self._place is not None:
            self.note("the learning rate stays, as the other ranks would not know of another")
            return
        if request.word == "stop":
            self.note("the script was asked to stop")
        self.remote.on_request(request, self.observer.thread, self.numbers.count)

    def before_step(self, optimizer: Optimizer) -> None:
        """Carry out the requests of other programs, and record them in the run."""
        if self._run is not None and self.remote.before_step(optimizer, self.note, self._writer.set_status):
            self._at_once = True  # the run is being viewed

    def end(self, status: Status, message: str) -> Outcome:
        """Record how the run ended."""
        late: MeasuredStep | None = None
        if self.run is None or self.run.over:
            return Outcome(self.has_diverged)
        if self.held.steps and status == "finished" and self.held.were_reported:
            self._accept_as_harmless()  # it continued after such steps before
        elif self.held.steps:
            self._diverge()
        elif self._suspect is not None:
            late = self._diverge_in_weights(self._suspect)
        if status == "finished" and self.has_diverged:
            status = "nonfinite"
        elif status == "finished" and self.remote.was_obeyed(self.numbers.count):
            status = "stopped"
        self._writer.end(status, message, self._rows.add_last(self.observer.told.take()))
        if self._messenger is not None:
            self._messenger.close()
        return Outcome(self.has_diverged, late)

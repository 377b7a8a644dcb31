"""The one watcher of a process: it receives torch's callbacks, has an observer for each optimizer, and writes a run for
each of them into the library."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer

from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.diagnosis.script_faults import script_fault
from gradstudio.core.row import Layer
from gradstudio.crash import call_values
from gradstudio.engine.torch_internals import parts
from gradstudio.session.library.packing import compressor
from gradstudio.session.library.writer import LibraryWriter
from gradstudio.session.record.run import Status
from gradstudio.watching.births.skipped_batches import SkippedBatch
from gradstudio.watching.hooks.guard import Stop, guarded, say
from gradstudio.watching.hooks.rank_place import current_place
from gradstudio.watching.hooks.torch_hooks import Hooks
from gradstudio.watching.observers import Observers
from gradstudio.watching.ranks.joined_run import Sender
from gradstudio.watching.ranks.rank_runs import RankRuns
from gradstudio.watching.recording.birth_lines import place_and_cause
from gradstudio.watching.recording.closing_lines import tell
from gradstudio.watching.recording.reports import Reports
from gradstudio.watching.recording.resumed_run import run_to_resume
from gradstudio.watching.recording.run_facts import Script
from gradstudio.watching.recording.watched_run import Outcome, WatchedRun
from gradstudio.watching.steps.measured_step import MeasuredStep
from gradstudio.watching.steps.step_observer import Observer
from gradstudio.watching.steps.watch_options import Options

INTERVAL = 0.8  # seconds between two writes, so that at most a second is lost
# Why a loss need not fall.
PLAYS = "of two optimizers, one throws away what the other's backward pass leaves in its gradients, as in a GAN"
OF_A_MATRIX = "LinAlgError"  # in the message of a script that ended because a matrix has no factors
PATIENCE_FOR_RANKS = 2.0  # seconds that a step which is to raise may wait for reports of other ranks
PATIENCE = 20.0  # seconds that the end of the script may wait for another program that locks the library


class Watcher:
    """Records the reports of the observers of a process. `every_optimizer`: each new one is watched."""

    def __init__(self, library: Path, script: Script, *, every_optimizer: bool, options: Options | None = None) -> None:
        """`options` apply to trainings that are not named explicitly."""
        parts.try_parts_of_a_watch()
        call_values.prepare()
        compressor()  # not in the midst of the training, as the script may have a module of that name
        self._script, self.library = script, library
        self.runs: list[WatchedRun] = []
        self.refused: list[str] = []  # why parameters cannot be measured
        self.closed = False
        self.has_written = False  # whether the library has all of the runs, once closed
        self._every_optimizer = every_optimizer
        self._running: dict[Observer, WatchedRun] = {}
        self._process = os.getpid()
        self._naming = threading.Lock()  # two threads may begin their runs at once, with titles of their own
        self._titles: Counter[str] = Counter()  # of all runs
        self._writer = LibraryWriter(library, in_sight=False, interval=INTERVAL)
        self._reports = Reports(lambda: max(len(self.runs), len(self.observers.all)) > 1)
        self._rank_runs = RankRuns(self._reports.on_outcome_of_ranks, self._keep)
        self._guard = guarded(self.give_up)
        self.observers = Observers(
            self, self._guard, self.give_up, options or Options(), every_optimizer=every_optimizer
        )
        self._hooks = Hooks(self.observers, self.give_up)
        self._hooks.install()
        atexit.register(self.close)

    def watch(
        self, model: nn.Module | None, optimizer: Optimizer | None, name: str = "", options: Options | None = None
    ) -> Observer:
        """Watch an optimizer, or each one that starts to train this model."""
        return self.observers.watch(model, optimizer, name, options)

    def leave(self, observer: Observer) -> None:
        """Stop watching this one; its run is over."""
        observer = observer.joined or observer
        self._guard(observer.close)()
        self.end(observer)
        if not self.observers.all and not self._every_optimizer:
            self.close()

    # ---- reports of observers

    def begin(self, observer: Observer, known: tuple[Layer, ...]) -> None:
        """Begin a run of an observer, with these layers."""
        if (before := self._running.pop(observer, None)) is not None:
            before.end("finished", "other parameters are trained from here on; they are a run of their own")
        parent = run_to_resume(self.library, observer.options.resume or "", known)
        self._running[observer] = WatchedRun(self._script, known, observer, self.library, parent)

    def log(self, observer: Observer, step: int | None, figures: Mapping[str, float]) -> None:
        """Keep the script's own figures for the next row."""
        observer = observer.joined or observer
        if observer.told.log(step, figures) and (run := self._running.get(observer)) is not None:
            run.need_not_fall("the script tells a reward")

    def end_cell(self) -> None:
        """End the runs that a notebook cell has made. If another cell continues the training, it does so in new
        ones."""
        for observer, run in list(self._running.items()):
            if run.has_begun and run.joined is None:
                observer.deliver()
                run.end("finished", "")
                parent = None if run.has_diverged else run.run
                self._running[observer] = WatchedRun(self._script, run.layers, observer, self.library, parent)

    def refuse(self, observer: Observer, why: str) -> None:
        """The parameters of one observer cannot be measured; all others are still watched."""
        if (before := self._running.pop(observer, None)) is not None:
            before.end("finished", f"watched no more: {why}")
        self.refused.append(why)
        names = " and ".join(type(model).__name__ for model in observer.models) or "a model"
        say(f"{names} {'are' if len(observer.models) > 1 else 'is'} not watched: {why}")

    def forget(self, observer: Observer) -> None:
        """Drop the run of an observer that another one has taken over before its first row was reported."""
        del self._running[observer]

    def before_step(self, observer: Observer, optimizer: Optimizer) -> None:
        """Carry out the requests of other programs, before a step of the optimizer."""
        if (watched_run := self._running.get(observer)) is not None and watched_run.remote.has_asked:
            observer.deliver()
            watched_run.before_step(optimizer)

    def after_step(self, observer: Observer, optimizer: Optimizer) -> None:
        """Undo what was requested for one step only, and write a pending crash file."""
        if (watched_run := self._running.get(observer)) is None:
            return
        watched_run.crash.write_due()
        if watched_run.remote.has_asked:
            observer.deliver()
            watched_run.remote.after_step(optimizer)
            if watched_run.remote.record_is_due:
                watched_run.remote.record_is_due = False
                if watched_run.crash.write("asked for", "asked for") and (path := watched_run.crash.path) is not None:
                    watched_run.note(f"a crash file was written: {path.name}")
                    say(watched_run.crash.line)

    def take(self, observer: Observer, made: MeasuredStep) -> bool:
        """Record a step, and report its news. Return whether the run has diverged."""
        watched_run = self._running[observer]
        outcome = self._record(watched_run, made)
        try:
            self._reports.on_outcome(watched_run, outcome)
        except FloatingPointError as fault:
            raise Stop(fault) from None
        is_broken = made.went_nonfinite or made.broke_weights
        if is_broken and watched_run.joined is not None:  # while the weights are there
            watched_run.crash.write(self._reports.lines(watched_run, made)[0], "not finite")
        if title := watched_run.new_critical:
            self._reports.on_critical(watched_run, title)
        return outcome.has_diverged

    def stop_before(self, observer: Observer, made: MeasuredStep) -> None:
        """Raise in the script, before the update, the report of this step: the gradient or the loss is non-finite."""
        watched_run = self._running[observer]
        self._record(watched_run, made)
        if watched_run.joined is not None:
            watched_run.joined.settle(PATIENCE_FOR_RANKS)
        self._reports.stop(watched_run, made)

    def stop_short(self, observer: Observer, made: MeasuredStep, *, is_row: bool) -> None:
        """Record that the script ended after a non-finite pass, so that it can no longer be stopped."""
        watched_run = self._running[observer]
        if is_row:
            self._record(watched_run, made)
        else:
            watched_run.keep(made.birth)
        before = watched_run.run.first_nonfinite_step if watched_run.run is not None else None
        if watched_run.joined is None and before in (None, watched_run.numbers.row_of(made.step)):
            self._reports.on_last(watched_run, made)

    def skip_batches(self, observer: Observer, skipped: SkippedBatch) -> None:
        """The script has skipped a non-finite batch. The first one is reported in full."""
        watched_run = self._running[observer]
        watched_run.skip_batches(skipped)
        if isinstance(watched_run.joined, Sender):
            birth = skipped.provenance
            watched_run.joined.skip(skipped.event(place_and_cause(birth) if birth is not None else ""))
        elif watched_run.skipped_batches == 1:
            self._reports.on_skipped(watched_run, skipped)

    def play(self, one: Observer, other: Observer) -> None:
        """Record that one optimizer discarded the gradients of the other's backward pass. They play against each other
        only if both make steps: one may be frozen for a while."""
        runs = [run for each in (one, other) if (run := self._running.get(each)) is not None and run.has_begun]
        for run in runs if len(runs) == 2 else ():
            run.need_not_fall(PLAYS)

    def find(self, observer: Observer, finding: Finding) -> None:
        """Record a fault that no row shows."""
        if (watched_run := self._running.get(observer)) is not None:
            is_new = finding.rule not in watched_run.early_findings
            watched_run.find(finding)
            if is_new and not watched_run.has_begun and finding.rule == "nothing_moves":
                say(f"{finding.severity}: {finding.title}. {finding.evidence}")  # there may never be a row
                say(f"  try: {finding.remedies[0]}")

    def may_join(self, observer: Observer) -> bool:
        """Return whether another optimizer may step for the first time after the same backward pass."""
        return self.observers.may_join(observer)

    def all_optimized_parameters(self) -> set[int] | None:
        """Return the ids of the parameters of all optimizers; None if not every optimizer is watched."""
        if not self._every_optimizer:
            return None
        optimized = [each for each in self.observers.all if each.optimizer is not None]
        return {id(tensor) for each in optimized for tensor in each.all_parameters()}

    def other_optimizers(self, observer: Observer) -> list[tuple[Any, int]]:
        """Return the optimizers of all other observers of this thread, each with its number of steps."""
        others = [each for each in self.observers.all if each is not observer and each.thread == observer.thread]
        return [(each.optimizer, each.next_step) for each in others if each.optimizer is not None]

    # ---- rows and lines

    def _record(self, watched_run: WatchedRun, measured_step: MeasuredStep) -> Outcome:
        """Record a step. With several ranks, rank 0 reports it once the figures of all are there."""
        watched_run.crash.thread = threading.get_ident()
        if not watched_run.has_begun:
            with self._naming:
                watched_run.begin(measured_step, self._titles)
                self.runs.append(watched_run)
            if (place := current_place()) is not None:
                watched_run.joined = self._rank_runs.join(watched_run, place, watched_run.observer.share(place.ranks))
            if watched_run.is_recorded:
                self._keep(watched_run)
        if watched_run.joined is None:
            return watched_run.take(measured_step)
        watched_run.joined.take(measured_step)
        return Outcome(watched_run.has_diverged)

    def _keep(self, watched_run: WatchedRun) -> None:
        """Write a run into the library from here on."""
        if watched_run.run is not None:
            self._writer.follow(watched_run.run, on_request=watched_run.on_request, gather=watched_run.look)

    # ---- the end

    def give_up(self, why: str) -> None:
        """End the watch after a fault; the script continues."""
        if not self.closed:
            self._hooks.remove()
            say(f"watching ended, the script goes on: {why}")
            for observer in self.observers.all:
                observer.births.remove()
            self._finish("stopped", f"watching ended: {why}")

    def close(self, status: Status | None = None, message: str = "") -> None:
        """End all runs and write the rest of them. Done automatically at exit."""
        if self.closed or os.getpid() != self._process:
            return
        self._guard(self.observers.join)()
        self._hooks.remove()
        fault = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        if status is None:
            status, message = outcome_of(fault)
        for observer in list(self.observers.all):
            self._guard(observer.close)()
        self._finish(status, message)
        if not self._every_optimizer:  # the command prints it, unless it was told to be quiet
            self._guard(lambda: tell(self.runs, self.library, written=self.has_written))()

    def _finish(self, status: Status, message: str) -> None:
        self.closed = True
        atexit.unregister(self.close)
        for observer in list(self.observers.all):
            self.end(observer, status, message)
        self._rank_runs.close()
        self.has_written = self._writer.close(PATIENCE)
        if not self.has_written:
            say(self._writer.problem or "the run library was not written to its end")
        elif self._writer.notice:
            say(self._writer.notice)

    def end(self, observer: Observer, status: Status = "finished", message: str = "") -> None:
        """End the run of an observer, which stops observing."""
        if (watched_run := self._running.pop(observer, None)) is not None:
            watched_run.crash.thread = threading.get_ident()
            if watched_run.joined is not None:
                watched_run.joined.close()
            watched_run.crash.write_due()
            if status == "failed" and OF_A_MATRIX in message and observer.next_step:
                step = (observer.next_step - 1) // observer.options.every
                told = f"{message[:1].upper()}{message[1:].rstrip('.')}."
                watched_run.find(script_fault("singular_matrix", told, step, step))
            outcome = watched_run.end(status, message)
            if outcome.broken is not None:
                self._reports.on_last(watched_run, outcome.broken)
            elif status == "failed" and observer.recorder.raised() and watched_run.crash.write(message, "raised"):
                say(watched_run.crash.line)
            observer.recorder.close()
        self.observers.all = [other for other in self.observers.all if other is not observer]


def outcome_of(fault: BaseException | None) -> tuple[Status, str]:
    """Return how the runs of a script that ended with this exception ended."""
    if fault is None or isinstance(fault, SystemExit):
        return "finished", ""
    if isinstance(fault, KeyboardInterrupt):
        return "stopped", ""
    return "failed", f"the script ended with {type(fault).__name__}: {' '.join(str(fault).split())[:300]}"

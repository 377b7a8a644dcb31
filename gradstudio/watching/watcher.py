"""The one watcher of a process: it receives torch's callbacks, has an observer for each optimizer, and writes a run for
each of them into the library."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from torch import nn
from torch.optim import Optimizer

from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.row import Layer
from gradstudio.core.text import one_line, shorten
from gradstudio.crash import call_values
from gradstudio.engine.torch_internals import parts
from gradstudio.session.files import crash_file
from gradstudio.session.files.log_reading.column_names import guess_columns
from gradstudio.session.library.packing import compressor
from gradstudio.session.library.store import Library, LibraryError
from gradstudio.session.library.writer import LibraryWriter
from gradstudio.session.record.run import Run, Status
from gradstudio.watching.births.loss_code import BEFORE_THE_LOSS, OF_ANOTHER
from gradstudio.watching.births.skipped_batches import SkippedBatch
from gradstudio.watching.hooks.guard import Stop, guarded, say
from gradstudio.watching.hooks.rank_place import here
from gradstudio.watching.hooks.torch_hooks import Hooks
from gradstudio.watching.observers import Observers
from gradstudio.watching.ranks.joined_run import Sender
from gradstudio.watching.ranks.party import Party
from gradstudio.watching.recorder.crash_writer import CrashWriter
from gradstudio.watching.recording.birth_lines import (
    NO_UPDATE,
    act,
    birth_lines,
    place_and_cause,
    skipped_lines,
    unknown_lines,
    update_lines,
)
from gradstudio.watching.recording.closing_lines import tell
from gradstudio.watching.recording.run_facts import Script
from gradstudio.watching.recording.watched_run import Outcome, WatchedRun
from gradstudio.watching.script.model_layers import names_of
from gradstudio.watching.steps.measured_step import MeasuredStep
from gradstudio.watching.steps.step_observer import Observer
from gradstudio.watching.steps.watch_options import Options

TOLD = ("accuracy", "test_accuracy", "val_loss", "reward", "kl")  # quantities that rules know by these names
INTERVAL = 0.8  # seconds between two writes, so that at most a second is lost
LONGEST_NAME = 60  # characters of a run's title before a line
ASKED = "asked for"  # why a crash file is written at the request of another program
FRUITLESS = 8  # unsuccessful searches for trained weights, after which no more are made
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
        self._party = Party(self._tell_of_several, self._keep)
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
        observer.close()
        self.end(observer)
        if not self.observers.all and not self._every_optimizer:
            self.close()

    # ---- reports of observers

    def begin(self, observer: Observer, known: tuple[Layer, ...]) -> None:
        """Begin a run of an observer, with these layers."""
        if (before := self._running.pop(observer, None)) is not None:
            before.end("finished", "other parameters are trained from here on; they are a run of their own")
        parent = self._parent(observer.options.resume, known) if observer.options.resume else None
        self._running[observer] = WatchedRun(self._script, known, observer, parent)

    def _parent(self, named: str, known: tuple[Layer, ...]) -> Run | None:
        """Return the run that is resumed by the next one; None, with a line on stderr, if that is impossible."""
        try:
            with closing(Library(self.library)) as library:
                run = library.load(library.find(named))
        except LibraryError as fault:
            say(f"resume={named}: {fault}")
            return None
        if run.watched is None or [layer.size for layer in run.history.layers] != [layer.size for layer in known]:
            say(f"resume={named}: that run trained other parameters, so this one begins by itself")
            return None
        return run

    def log(self, observer: Observer, step: int | None, figures: Mapping[str, float]) -> None:
        """Keep the script's own figures for the next row."""
        told = (observer.joined or observer).told
        told.step = step if step is not None else told.step
        names = {name: quantity for quantity, name in guess_columns(figures, {}).items() if quantity in TOLD}
        for name, value in figures.items():
            told.add(names.get(name, name), value)
            if names.get(name) == "reward" and (run := self._running.get(observer.joined or observer)) is not None:
                run.has_reward()

    def end_cell(self) -> None:
        """End the runs that a notebook cell has made. If another cell continues the training, it does so in new
        ones."""
        for observer, run in list(self._running.items()):
            if run.has_begun and run.joined is None:
                observer.deliver()
                run.end("finished", "")
                parent = None if run.has_diverged else run.run
                self._running[observer] = WatchedRun(self._script, run.layers, observer, parent)

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
        self._write_due(watched_run)
        if watched_run.remote.has_asked:
            observer.deliver()
            watched_run.remote.after_step(optimizer)
            if watched_run.remote.record_is_due:
                watched_run.remote.record_is_due = False
                self.record(watched_run)

    def take(self, observer: Observer, made: MeasuredStep) -> bool:
        """Record a step, and report its news. Return whether the run has diverged."""
        watched_run = self._running[observer]
        outcome = self._record(watched_run, made)
        try:
            self._tell(watched_run, outcome)
        except FloatingPointError as fault:
            raise Stop(fault) from None
        if watched_run.joined is not None and made.went_nonfinite:
            self._crash(watched_run, self._lines(watched_run, made)[0], "not finite")  # while the weights are there
        kinds, title = watched_run.crash_kinds, watched_run.new_critical
        if not (kinds or watched_run.crash_due) and title and self._crash(watched_run, title, "critical"):
            say(self._with_title(watched_run, f"critical: {title}"))
            say(watched_run.crash_line)
        return outcome.has_diverged

    def _crash(self, watched_run: WatchedRun, reason: str, kind: str) -> bool:
        """Write a crash file of a run: one of each kind, and any that was requested (`ASKED`). Return whether it was
        written."""
        observer, recorder = watched_run.observer, watched_run.observer.recorder
        if kind in watched_run.crash_kinds or not recorder.states or observer.options.on_nonfinite == "ignore":
            return False
        if (place := here()) is not None and place.rank and kind != "not finite":
            return False  # rank 0 alone knows of it
        if threading.get_ident() != watched_run.thread:  # the script trains meanwhile, and its weights are restored
            watched_run.crash_due = watched_run.crash_due or (reason, kind)
            return False
        models = observer.models_in_script or observer.models
        names = [""] if len(models) == 1 else names_of(models)
        writer = CrashWriter(recorder, dict(zip(models, names, strict=True)))
        path = crash_file.path_of(
            self.library, watched_run.recorded_id, recorder.states[0].steps[-1].number, place.rank if place else 0
        )
        try:
            written = writer.write(path, reason, watched_run.recorded_id, self._script.path)
        except Exception as fault:  # from the user's objects, or from the disk
            say(f"no crash file was written: {' '.join(str(fault).split())[:200] or type(fault).__name__}")
            return False
        if written is None:
            return False
        watched_run.crash, watched_run.crash_unknown = path, written.unknown
        watched_run.crash_kinds |= {kind} - {ASKED}
        return True

    def _write_due(self, watched_run: WatchedRun) -> None:
        due, watched_run.crash_due = watched_run.crash_due, None
        if due is not None and (self._crash(watched_run, *due) or due[1] in watched_run.crash_kinds):
            say(watched_run.crash_line)

    def record(self, run: WatchedRun) -> None:
        """Write a crash file at the request of another program."""
        if self._crash(run, ASKED, ASKED):
            run.note(f"a crash file was written: {run.crash.name if run.crash else ''}")
            say(run.crash_line)

    def stop_before(self, observer: Observer, made: MeasuredStep) -> None:
        """Raise in the script, before the update, the report of this step: the gradient or the loss is non-finite."""
        watched_run = self._running[observer]
        self._record(watched_run, made)
        if watched_run.joined is not None:
            watched_run.joined.settle(PATIENCE_FOR_RANKS)
        lines = [*self._lines(watched_run, made), NO_UPDATE]
        raise Stop(FloatingPointError("\n".join([*lines, *self._crash_lines(watched_run, lines[0])])))

    def stop_short(self, observer: Observer, made: MeasuredStep, *, is_row: bool) -> None:
        """The script ended after a non-finite pass. It can no longer be stopped."""
        watched_run = self._running[observer]
        if is_row:
            self._record(watched_run, made)
        else:
            watched_run.keep(made.birth)
        before = watched_run.run.first_nonfinite_step if watched_run.run is not None else None
        if (
            watched_run.joined is None
            and before in (None, watched_run.row_of(made.step))
            and observer.options.on_nonfinite != "ignore"
        ):
            lines = self._lines(watched_run, made)
            act([*lines, *self._crash_lines(watched_run, lines[0])], "explain", say)

    def skip_batches(self, observer: Observer, skipped: SkippedBatch) -> None:
        """The script has skipped a non-finite batch. The first one is reported in full."""
        watched_run = self._running[observer]
        watched_run.skip_batches(skipped)
        if isinstance(watched_run.joined, Sender):
            birth = skipped.provenance
            watched_run.joined.skip(skipped.event(place_and_cause(birth) if birth is not None else ""))
        elif watched_run.skipped_batches == 1 and observer.options.on_nonfinite != "ignore":
            head, *lines = skipped_lines(skipped, watched_run.own_step(observer.next_step))
            for line in (self._with_title(watched_run, head), *lines):
                say(line)

    def play(self, one: Observer, other: Observer) -> None:
        """One optimizer discarded the gradients that a backward pass of the other one had left. They play against each
        other only if both make steps: one may be frozen for a while."""
        runs = [
            watched_run
            for each in (one, other)
            if (watched_run := self._running.get(each)) is not None and watched_run.has_begun
        ]
        for watched_run in runs if len(runs) == 2 else ():
            watched_run.plays_against()

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
        return {
            id(tensor) for each in self.observers.all if each.optimizer is not None for tensor in each.all_parameters()
        }

    # ---- rows and lines

    def _record(self, watched_run: WatchedRun, measured_step: MeasuredStep) -> Outcome:
        """Record a step. With several ranks, rank 0 reports it once the figures of all are there."""
        watched_run.thread = threading.get_ident()
        if not watched_run.has_begun:
            with self._naming:
                watched_run.begin(measured_step, self._titles)
                self.runs.append(watched_run)
            if (place := here()) is not None:
                watched_run.joined = self._party.join(watched_run, place, watched_run.observer.share(place.ranks))
            if watched_run.is_recorded:
                self._keep(watched_run)
        if watched_run.joined is None:
            return watched_run.take(measured_step)
        watched_run.joined.take(measured_step)
        return Outcome(watched_run.has_diverged)

    def _tell(self, watched_run: WatchedRun, outcome: Outcome) -> None:
        """Report the outcome of a step, or raise it as a FloatingPointError, as requested."""
        policy = watched_run.observer.options.on_nonfinite
        if outcome.said and policy != "ignore":
            say(self._with_title(watched_run, outcome.said))
        if (made := outcome.broken) is not None:
            lines = self._lines(watched_run, made)
            lines += [NO_UPDATE] if made.left_out and not outcome.has_diverged else []
            act([*lines, *self._crash_lines(watched_run, lines[0])], policy, say)

    def _crash_lines(self, watched_run: WatchedRun, reason: str) -> list[str]:
        """Write a crash file, unless a run of several ranks already has one, and return the line that says where it
        is."""
        has_file = watched_run.joined is not None and "not finite" in watched_run.crash_kinds
        return [watched_run.crash_line] if has_file or self._crash(watched_run, reason, "not finite") else []

    def _tell_of_several(self, watched_run: WatchedRun, outcome: Outcome) -> None:
        """Report the outcome of a step of all ranks."""
        if outcome.has_diverged and watched_run.observer.options.on_nonfinite == "explain":
            self._tell(watched_run, outcome)

    def _keep(self, watched_run: WatchedRun) -> None:
        """Write a run into the library from here on."""
        if watched_run.run is not None:
            self._writer.follow(watched_run.run, hear=watched_run.on_request, gather=watched_run.look)

    def _lines(self, watched_run: WatchedRun, measured_step: MeasuredStep) -> list[str]:
        """Return the report about a non-finite step."""
        (provenance, unknown), options = measured_step.birth, watched_run.observer.options
        if provenance is not None:
            lines = birth_lines(provenance, watched_run.own_step(measured_step.step), measured_step.row())
            of_weights = provenance.phase == "update"
        else:
            lines = unknown_lines(
                unknown or "no pass of a model was seen", watched_run.own_step(measured_step.step), measured_step.row()
            )
            of_weights = BEFORE_THE_LOSS in unknown and OF_ANOTHER not in unknown
        if of_weights and watched_run.run is not None and options.every == 1:
            lines += update_lines(watched_run.run.history, watched_run.row_of(measured_step.step))
        if options.every > 1 and watched_run.run is not None and watched_run.run.first_nonfinite_step is not None:
            lines[0] += f"; step {watched_run.run.first_nonfinite_step:,} of the run, which counts rows"
        lines[0] = self._with_title(watched_run, lines[0])
        return lines

    def _with_title(self, run: WatchedRun, line: str) -> str:
        """Return the report of a run preceded by its title, if others train too, as in a GAN."""
        if run.run is None or max(len(self.runs), len(self.observers.all)) < 2:
            return line
        return f"{shorten(one_line(run.run.title), LONGEST_NAME)}: {line}"

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
        self._party.close()
        self.has_written = self._writer.close(PATIENCE)
        if not self.has_written:
            say(self._writer.problem or "the run library was not written to its end")
        elif self._writer.notice:
            say(self._writer.notice)

    def end(self, observer: Observer, status: Status = "finished", message: str = "") -> None:
        """End the run of an observer, which stops observing."""
        if (watched_run := self._running.pop(observer, None)) is not None:
            watched_run.thread = threading.get_ident()
            if watched_run.joined is not None:
                watched_run.joined.close()
            self._write_due(watched_run)
            outcome = watched_run.end(status, message)
            if outcome.broken is not None and observer.options.on_nonfinite != "ignore":
                lines = self._lines(watched_run, outcome.broken)
                act([*lines, *self._crash_lines(watched_run, lines[0])], "explain", say)
            elif status == "failed" and observer.recorder.raised() and self._crash(watched_run, message, "raised"):
                say(watched_run.crash_line)
            observer.recorder.close()
        self.observers.all = [other for other in self.observers.all if other is not observer]


def outcome_of(fault: BaseException | None) -> tuple[Status, str]:
    """Return how the runs of a script that ended with this exception ended."""
    if fault is None or isinstance(fault, SystemExit):
        return "finished", ""
    if isinstance(fault, KeyboardInterrupt):
        return "stopped", ""
    return "failed", f"the script ended with {type(fault).__name__}: {' '.join(str(fault).split())[:300]}"

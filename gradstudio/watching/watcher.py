"""The one watcher of a process: it hears torch, has an observer for each optimizer, and writes a run for each of them
into the library."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.history import Layer, Row
from gradstudio.core.provenance import Provenance
from gradstudio.core.text import one_line, shortened
from gradstudio.session.library.packing import compressor
from gradstudio.session.library.writer import LibraryWriter
from gradstudio.session.record.run import Status
from gradstudio.watching.births.loss_code import BEFORE_THE_LOSS, OF_ANOTHER
from gradstudio.watching.births.passed_over import PassedOver
from gradstudio.watching.hearing.guard import Stop, guarded, say
from gradstudio.watching.hearing.hooks import Hooks, Roots
from gradstudio.watching.hearing.leaves import reached
from gradstudio.watching.hearing.rank_place import here
from gradstudio.watching.measuring.parameters import prepare
from gradstudio.watching.ranks.inner_optimizers import is_within
from gradstudio.watching.ranks.joined_run import Sender
from gradstudio.watching.ranks.party import Party
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
from gradstudio.watching.recording.watched_run import Script, WatchedRun
from gradstudio.watching.script import model_layers
from gradstudio.watching.steps.heard_steps import Observer
from gradstudio.watching.steps.joined_observer import JoinedObserver
from gradstudio.watching.steps.measured_step import MeasuredStep
from gradstudio.watching.steps.watch_options import Options

INTERVAL = 0.8  # seconds between two writings, so that at most a second is lost
LONGEST_NAME = 60  # characters of a run's title before a line
FRUITLESS = 8  # searches for trained weights that came to nothing, after which no more are made
PATIENCE_FOR_RANKS = 2.0  # seconds that a step which is to raise may wait for what other ranks know of it
PATIENCE = 20.0  # seconds that the end of the script may wait for another program that holds the library


class Watcher:
    """Hears the whole process. `every_optimizer`: watches each one that is made, whatever model it trains."""

    def __init__(self, library: Path, script: Script, *, every_optimizer: bool, options: Options | None = None) -> None:
        """`options` are those of what nobody names."""
        prepare()
        with suppress(ImportError):
            compressor()  # not in the midst of the training, where the script may have a module of that name
        self._script, self.library = script, library
        self._options = options or Options()
        self.runs: list[WatchedRun] = []
        self.refused: list[str] = []  # why parameters cannot be measured
        self.closed = False
        self.has_written = False  # whether the library has all of the runs, once closed
        self._every_optimizer = every_optimizer
        self._models: list[tuple[weakref.ref[nn.Module], Options]] = []  # those of which every optimizer is watched
        self._observers: list[Observer] = []
        self._running: dict[Observer, WatchedRun] = {}
        self._searches: Counter[int] = Counter()  # for what a thread trains that another has made, by thread
        self._making = False  # whether an optimizer has just been made, of which no scheduler can be there
        self._passes = 0  # backward passes
        self._in_pass = False  # whether a backward pass is at work
        self._unclaimed = False  # whether nobody observes what the latest backward pass reached
        self._tried: list[weakref.ref[Observer]] = []  # observers of what searches have found
        # the latest clip of gradients that nobody observes, which are ids
        self._unheard_clip: tuple[str, float, set[int]] | None = None
        self._process = os.getpid()
        self._naming = threading.Lock()  # two threads may begin their runs at once, with titles of their own
        self._titles: Counter[str] = Counter()  # of all runs
        self._writer = LibraryWriter(library, in_sight=False, interval=INTERVAL)
        self._party = Party(self._tell_of_several, self._keep)
        self._guard = guarded(self.give_up)
        self._hooks = Hooks(self, self.give_up)
        self._hooks.install()
        atexit.register(self.close)

    # ---- what is watched

    def watch(
        self,
        model: nn.Module | None,
        optimizer: Optimizer | None,
        name: str = "",
        options: Options | None = None,
    ) -> Observer:
        """Watch an optimizer, or each one that comes to train this model."""
        options = options or self._options
        if optimizer is not None and (known := self._observer_of(optimizer)) is not None:
            return known
        if optimizer is None and model is not None:
            self._models.append((weakref.ref(model), options))
        observer = Observer(self, optimizer, model, self._guard, name, options=options)
        observer.find_models()
        if optimizer is not None and not self._making:  # schedulers that were made before the watch was asked for
            observer.schedules += map(weakref.ref, model_layers.schedules_of(optimizer))
        self._observers.append(observer)
        return observer

    def leave(self, observer: Observer) -> None:
        """Watch this one no more; its run is over."""
        observer = observer.joined or observer
        observer.close()
        self._end(observer)
        if not self._observers and not self._every_optimizer:
            self.close()

    def _observer_of(self, optimizer: Optimizer) -> Observer | None:
        for observer in self._observers:  # a generator takes three times as long
            if observer.has(optimizer):
                return observer
        return None

    def _adopted(self, optimizer: Optimizer) -> Observer | None:
        """Return the observer of an optimizer that nobody named. It is the one of the model that it trains, where that
        has no optimizer yet."""
        if is_within(optimizer, (each.optimizer for each in self._observers)):
            return None
        held = set(map(id, model_layers.of_optimizer(optimizer)))
        for found, options in self._models:
            model = found()  # of which some have a length of 0, or none
            if model is not None and any(id(tensor) in held for tensor in model.parameters()):
                waiting = next((each for each in self._observers if each.waits_for(model)), None)
                if waiting is not None:
                    waiting.adopt(optimizer)
                    return waiting
                return self.watch(model, optimizer, options=options)
        return self.watch(None, optimizer) if self._every_optimizer else None

    def _present(self) -> list[Observer]:
        """Return the list of all observers that still have something to observe, and end the runs of the others."""
        if any([observer.gone for observer in self._observers]):
            for observer in [observer for observer in self._observers if observer.gone]:
                if observer.settle():
                    self._end(observer)
        return self._observers

    # ---- what torch does

    def made(self, optimizer: Optimizer) -> None:
        self._present()
        self._making = True
        self._adopted(optimizer)
        self._making = False

    def before_backward(self, roots: Roots) -> None:
        self._in_pass = True
        self.join()
        if (alone := self._alone()) is not None:
            alone.before_backward(roots)
            return
        if self._every_optimizer and (self._unclaimed or not self._present()):
            self._look_for_weights(roots)
        self._claim_reached(roots)
        for observer in self._of_this_thread():
            observer.before_backward(roots)

    def after_backward(self, roots: Roots) -> None:
        self._in_pass = False
        if (alone := self._alone()) is not None:
            self._passes += 1
            if alone.after_backward(roots):
                alone.latest = self._passes
            else:
                self._unclaimed = True
            return
        present = self._of_this_thread()
        trained = [observer.after_backward(roots) for observer in present]
        self._passes += 1
        self._unclaimed = True not in trained
        for observer, trains in zip(present, trained, strict=True):
            if trains:
                observer.latest = self._passes
                if not observer.claimed:
                    self._claim(observer)
        self.join()

    # ---- several optimizers of one model

    def may_join(self, observer: Observer, *, alone: bool = False) -> bool:
        """Return whether another optimizer may come to step after the same backward pass for the first time, as its
        gradients came of the same passes; `alone`: or has done so."""
        of = observer.first_of
        return any(
            other is not observer and other.thread == observer.thread and other.optimizer is not None
            and (
                (not other.has_rows and (self._in_pass or (other.latest, other.micro_batches) == of))
                or (not alone and other.waits_to_join and other.first_of == of)
            )
            for other in self._observers
        )  # fmt: skip

    def join(self) -> None:
        """Take the optimizers for one that have stepped after the same backward pass, for the first time, and train one
        model."""
        waiting = [each for each in self._observers if each.waits_to_join]
        if len(waiting) < 2:
            return
        first = waiting[0]
        members = [
            each
            for each in waiting
            if (each.first_of, each.thread, each.options) == (first.first_of, first.thread, first.options)
        ]
        if len(members) < 2 or not model_layers.modules_with([tensor for each in members for tensor in each.held()]):
            return
        for each in members:
            del self._running[each]
        self._observers[self._observers.index(first)] = JoinedObserver(self, members, self._guard)
        self._observers = [each for each in self._observers if each not in members]

    def _alone(self) -> Observer | None:
        """Return the only observer, where nothing but its own training is going on: mostly, and quickly."""
        observers = self._observers
        if len(observers) != 1 or self._unclaimed:
            return None
        only = observers[0]
        return only if only.claimed and only.thread == threading.get_ident() and not only.gone else None

    def _of_this_thread(self) -> list[Observer]:
        """Return the observers whose gradients may be looked at here: torch crashes where one thread reads a gradient
        while the backward pass of another writes it."""
        here, observers = threading.get_ident(), self._observers
        if len(observers) == 1 and (only := observers[0]).thread == here and not only.gone:
            return [only]
        return [observer for observer in self._present() if observer.thread == here]

    def _claim_reached(self, roots: Roots) -> None:
        """Find what was made in one thread, and comes to be trained in this one."""
        here = threading.get_ident()
        strangers = [each for each in self._observers if not each.claimed and each.thread != here]
        if not strangers or self._searches[here] >= FRUITLESS:
            return
        self._searches[here] += 1
        found = set(map(id, reached(roots.tensors)))
        for observer in strangers:
            if any(id(tensor) in found for tensor in observer.held()):
                self._claim(observer)

    def _claim(self, observer: Observer) -> None:
        """Let this thread alone look at the gradients of an observer from here on."""
        here = threading.get_ident()
        observer.thread, observer.claimed = here, True
        others = {each.ident for each in threading.enumerate()} - {here}
        held = set(map(id, observer.held()))
        for other in self._observers:
            if other.claimed and other.thread in others and any(id(tensor) in held for tensor in other.held()):
                self.give_up("two threads train the same parameters")
                return

    def _look_for_weights(self, roots: Roots) -> None:
        """Observe the weights that a backward pass reaches, as no optimizer of torch has them."""
        fruitless = [found for tried in self._tried if (found := tried()) is not None and not found.has_rows]
        if len(fruitless) >= FRUITLESS:
            return
        held = {id(tensor) for observer in self._observers for tensor in observer.held()}
        found = [tensor for tensor in reached(roots.tensors) if id(tensor) not in held]
        if not found:
            return
        if around := model_layers.modules_with(found):
            observer = self.watch(around[0], None)
        else:
            observer = Observer(self, None, None, self._guard, tensors=found, options=self._options)
            self._observers.append(observer)
        self._tried.append(weakref.ref(observer))

    def before_step(self, optimizer: Optimizer, arguments: Any, named: Any) -> Any:
        if (observer := self._observer_of(optimizer)) is None:
            if (observer := self._adopted(optimizer)) is None:
                return None
            if self._unheard_clip is not None:
                observer.was_clipped(*self._unheard_clip)
                self._unheard_clip = None
        if self._in_pass:  # it steps within the backward pass, on a GPU in a thread of torch's
            observer.latest = self._passes + 1
        elif not observer.claimed or (observer.thread != threading.get_ident() and not observer.micro_batches):
            self._claim(observer)  # a thread that makes the steps alone, of passes of another, does not claim it
        if (found := self._running.get(observer)) is not None and found.remote.has_asked:
            observer.deliver()
            found.before_step(optimizer)
        return observer.before_step(optimizer, arguments, named)

    def after_step(self, optimizer: Optimizer, arguments: Any, named: Any) -> None:
        if (observer := self._observer_of(optimizer)) is not None:
            observer.after_step(optimizer)
            if len(self._observers) > 1:
                self._use(observer)
                if not self._in_pass and not self.may_join(observer, alone=True):
                    self.join()
            if (found := self._running.get(observer)) is not None and found.remote.has_asked:
                observer.deliver()
                found.remote.after_step(optimizer)

    def _use(self, observer: Observer) -> None:
        """Tell the other observers whose gradients are of the same backward pass that a step was made with it."""
        for other in self._observers:
            if other is not observer and other.latest == observer.latest:
                other.used_elsewhere(observer)

    def before_scaled_step(self, optimizer: Optimizer) -> None:
        if (observer := self._observer_of(optimizer)) is not None:
            observer.before_scaled_step()

    def after_scaled_step(self, optimizer: Optimizer) -> None:
        if (observer := self._observer_of(optimizer)) is not None:
            observer.after_scaled_step(optimizer)

    def clipped(self, kind: str, limit: float, gradients: Sequence[Tensor], parameters: Sequence[Tensor]) -> None:
        clipped, is_heard = set(map(id, gradients or parameters)), False  # one clip may be of several optimizers
        for observer in self._of_this_thread():
            if observer.has_any(clipped) if gradients else observer.trains_any(clipped):
                observer.clipped(kind, limit)
                is_heard = True
        if not is_heard:
            self._unheard_clip = kind, limit, clipped

    def after_clipping(self) -> None:
        for observer in self._of_this_thread():
            observer.after_clipping()

    def scheduled(self, scheduler: LRScheduler) -> None:
        if (observer := self._observer_of(scheduler.optimizer)) is not None:
            observer.schedules.append(weakref.ref(scheduler))

    def before_copying(self) -> None:
        for observer in self._observers:
            observer.births.detach()

    def after_copying(self) -> None:
        for observer in self._observers:
            observer.births.attach()

    def compiled(self, model: nn.Module) -> None:
        for observer in self._observers:
            if any(each is model for each in observer.models):
                observer.births.attach()

    def autocast(self, dtype: torch.dtype) -> None:
        if not torch.is_grad_enabled():
            return  # an evaluation
        for observer in self._of_this_thread():
            observer.autocast.entered(dtype)

    # ---- what observers see

    def begin(self, observer: Observer, known: tuple[Layer, ...]) -> None:
        if (before := self._running.pop(observer, None)) is not None:
            before.end("finished", "other parameters are trained from here on; they are a run of their own")
        self._running[observer] = WatchedRun(self._script, known, observer)

    def refuse(self, observer: Observer, why: str) -> None:
        """Hear that the parameters of one observer cannot be measured; all others are watched."""
        if (before := self._running.pop(observer, None)) is not None:
            before.end("finished", f"watched no more: {why}")
        self.refused.append(why)
        names = " and ".join(type(model).__name__ for model in observer.models) or "a model"
        say(f"{names} {'are' if len(observer.models) > 1 else 'is'} not watched: {why}")

    def take(self, observer: Observer, made: MeasuredStep) -> bool:
        """Record a step. Return whether the run has diverged. Of the steps that a loss scaler skips, the first is told
        in full."""
        found = self._running[observer]
        spared, harmless = found.spared, found.harmless
        self._record(found, observer, made)
        if found.joined is not None:
            return found.has_diverged  # rank 0 tells of it once the figures of all ranks are there
        policy = observer.options.on_nonfinite
        if policy == "ignore":
            return found.has_diverged
        if made.left_out and found.left_out == 1:
            for line in (*self._lines(found, made.step, made.row()), NO_UPDATE):
                say(line)
        if made.left_out and not found.has_diverged:
            return False
        if found.spared and not spared:
            said = (
                "the loss scaler skipped that update, and the training goes on; later such steps are events of the run"
            )
            say(self._named(found, said))
        if found.harmless and not harmless:
            say(self._named(found, "its gradient was finite all the same, and the training goes on"))
        if (row := found.news) is None:
            return found.has_diverged
        was_held = row is not made and row is not found.told_late  # and told then, if it was the first of its kind
        if (
            policy == "raise"
            or (found.has_diverged and not was_held)
            or bool(found.spared + found.harmless) is was_held
        ):
            try:
                act(self._lines(found, row.step, row if isinstance(row, Row) else row.row()), policy, say)
            except FloatingPointError as fault:
                raise Stop(fault) from None
        return found.has_diverged

    def stop_before(self, observer: Observer, row: Row) -> None:
        """Raise in the script, before the update, what this row tells: the gradient or the loss is not finite."""
        found = self._running[observer]
        self._record(found, observer, row)
        if found.joined is not None:
            found.joined.settle(PATIENCE_FOR_RANKS)
        raise Stop(FloatingPointError("\n".join([*self._lines(found, row.step, row), NO_UPDATE])))

    def _tell_of_several(self, found: WatchedRun, row: MeasuredStep | Row) -> None:
        """Tell of a row of all ranks."""
        if found.news is not None and found.has_diverged and found.observer.options.on_nonfinite == "explain":
            act(self._lines(found, row.step, row if isinstance(row, Row) else row.row()), "explain", say)

    def stopped_short(self, observer: Observer, step: int, row: Row | None) -> None:
        """Hear that the script ended after a forward pass that is not finite. It cannot be stopped any more."""
        found = self._running[observer]
        if row is None:
            found.keep_birth()
        else:
            self._record(found, observer, row)
        if found.joined is not None:
            return
        before = found.run.first_nonfinite_step if found.run is not None else None
        if observer.options.on_nonfinite != "ignore" and before in (None, step):
            act(self._lines(found, step, row), "explain", say)

    def pass_over(self, observer: Observer, skipped: PassedOver) -> None:
        """Hear that the script has passed over a batch that was not finite. The first one is told in full."""
        found = self._running[observer]
        found.pass_over(skipped)
        if isinstance(found.joined, Sender):
            born = skipped.provenance
            found.joined.skip(skipped.event(place_and_cause(born) if born is not None else ""))
            return
        if found.passed_over == 1 and observer.options.on_nonfinite != "ignore":
            head, *lines = skipped_lines(skipped, observer.next_step)
            for line in (self._named(found, head), *lines):
                say(line)

    def play(self, one: Observer, other: Observer) -> None:
        """Hear that one optimizer threw away what a backward pass of the other one had left in its gradients. Only of
        two that both make steps it follows that they play against each other: one may be frozen for a while."""
        runs = [found for each in (one, other) if (found := self._running.get(each)) is not None and found.has_begun]
        for found in runs if len(runs) == 2 else ():
            found.plays_against()

    def find(self, observer: Observer, finding: Finding) -> None:
        """Hear of a fault that no row tells of."""
        if (found := self._running.get(observer)) is not None:
            is_new = finding.rule not in found.early_findings
            found.find(finding)
            if is_new and not found.has_begun and finding.rule == "nothing_moves":
                say(f"{finding.severity}: {finding.title}. {finding.evidence}")  # there may never be a row
                say(f"  try: {finding.remedies[0]}")

    def held_by_all(self) -> set[int] | None:
        """Return the ids of the parameters that any optimizer holds; None where not every optimizer is watched."""
        if not self._every_optimizer:
            return None
        return {id(tensor) for each in self._observers if each.optimizer is not None for tensor in each.held()}

    def _record(self, found: WatchedRun, observer: Observer, made: MeasuredStep | Row) -> None:
        if not found.has_begun:
            row = made if isinstance(made, Row) else made.row()
            with self._naming:
                found.begin(row, self._titles)
                self.runs.append(found)
            if (place := here()) is not None:
                found.joined = self._party.join(found, place, observer.share(place.ranks))
            if found.is_recorded:
                self._keep(found)
        if found.joined is not None:
            found.joined.take(made)
        else:
            found.take(made)

    def _keep(self, found: WatchedRun) -> None:
        """Write a run into the library from here on."""
        if found.run is not None:
            self._writer.follow(found.run, hear=found.hear, gather=found.gather)

    def explain(self, observer: Observer, provenance: Provenance | None, unknown: str) -> None:
        self._running[observer].explain(provenance, unknown)

    def _lines(self, found: WatchedRun, step: int, row: Row | None) -> list[str]:
        """Return what is said of a run that has diverged."""
        provenance, unknown = found.birth
        if provenance is not None:
            lines = birth_lines(provenance, step, row)
        else:
            lines = unknown_lines(unknown or "no pass of a model was seen", step, row)
        of_weights = BEFORE_THE_LOSS in unknown and OF_ANOTHER not in unknown
        of_weights = of_weights if provenance is None else provenance.phase == "update"
        if of_weights and found.run is not None and found.observer.options.every == 1:
            lines += update_lines(found.run.history, step)
        if found.observer.options.every > 1 and found.run is not None and found.run.first_nonfinite_step is not None:
            lines[0] += f"; step {found.run.first_nonfinite_step:,} of the run, which counts rows"
        lines[0] = self._named(found, lines[0])
        return lines

    def _named(self, found: WatchedRun, line: str) -> str:
        """Return what is said of a run with its title before it, where others train too, as in a GAN."""
        if found.run is None or max(len(self.runs), len(self._observers)) < 2:
            return line
        return f"{shortened(one_line(found.run.title), LONGEST_NAME)}: {line}"

    # ---- the end

    def give_up(self, why: str) -> None:
        """Take the watch off after a fault; the script goes on."""
        if not self.closed:
            self._hooks.remove()
            say(f"watching ended, the script goes on: {why}")
            for observer in self._observers:
                observer.births.remove()
            self._finish("stopped", f"watching ended: {why}")

    def close(self, status: Status | None = None, message: str = "") -> None:
        """End all runs and write what is left of them. Done at the exit by itself."""
        if self.closed or os.getpid() != self._process:
            return
        self._guard(self.join)()
        self._hooks.remove()
        fault = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        if status is None:
            status, message = outcome_of(fault)
        for observer in list(self._observers):
            self._guard(observer.close)()
        self._finish(status, message)
        if not self._every_optimizer:  # the command says it, unless it was told to be quiet
            self._guard(lambda: tell(self.runs, self.library, written=self.has_written))()

    def _finish(self, status: Status, message: str) -> None:
        self.closed = True
        atexit.unregister(self.close)
        for observer in list(self._observers):
            self._end(observer, status, message)
        self._party.close()
        self.has_written = self._writer.close(PATIENCE)
        if not self.has_written:
            say(self._writer.problem or "the run library was not written to its end")
        elif self._writer.notice:
            say(self._writer.notice)

    def _end(self, observer: Observer, status: Status = "finished", message: str = "") -> None:
        found = self._running.pop(observer, None)
        if found is not None:
            if found.joined is not None:
                found.joined.close()
            found.end(status, message)
            if (
                (made := found.told_late) is not None
                and made is found.news
                and observer.options.on_nonfinite != "ignore"
            ):
                act(self._lines(found, made.step, made.row()), "explain", say)
        self._observers = [other for other in self._observers if other is not observer]


def outcome_of(fault: BaseException | None) -> tuple[Status, str]:
    """Return how runs ended whose script ended with this exception."""
    if fault is None or isinstance(fault, SystemExit):
        return "finished", ""
    if isinstance(fault, KeyboardInterrupt):
        return "stopped", ""
    return "failed", f"the script ended with {type(fault).__name__}: {' '.join(str(fault).split())[:300]}"

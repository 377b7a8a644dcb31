"""Dispatches torch's callbacks in a user's script to the observers of the training concerned: one for each optimizer,
or for several of one model."""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from gradstudio.watching.hooks.leaves import reached_weights
from gradstudio.watching.hooks.torch_hooks import Roots
from gradstudio.watching.ranks.inner_optimizers import is_within, optimizers_of
from gradstudio.watching.script import model_layers
from gradstudio.watching.steps.joined_observer import JoinedObserver
from gradstudio.watching.steps.sink import Sink
from gradstudio.watching.steps.step_observer import Observer
from gradstudio.watching.steps.watch_options import Options

FRUITLESS = 8  # unsuccessful searches for trained weights, after which no more are made


class Observers:
    """The observers of a process. `every_optimizer`: each new optimizer gets one, whatever model it trains."""

    def __init__(
        self,
        sink: Sink,
        guard: Callable[[Any], Any],
        give_up: Callable[[str], None],
        options: Options,
        *,
        every_optimizer: bool,
    ) -> None:
        """`options` apply to trainings that are not named explicitly."""
        self._sink, self._guard, self._give_up, self._options = sink, guard, give_up, options
        self._every_optimizer = every_optimizer
        self.all: list[Observer] = []
        self._models: list[tuple[weakref.ref[nn.Module], Options]] = []  # those whose optimizers are all watched
        self._searches: Counter[int] = Counter()  # for what a thread trains that another has created, by thread
        self._making = False  # whether an optimizer has just been created, which cannot have a scheduler yet
        self._passes = 0  # backward passes
        self._in_pass = False  # whether a backward pass is running
        self._unclaimed = False  # whether what the latest backward pass reached is not observed
        self._tried: list[weakref.ref[Observer]] = []  # observers of what searches have found
        # the latest clip of unobserved gradients, which are ids
        self._unheard_clip: tuple[str, float, set[int]] | None = None

    # ---- watched objects

    def watch(
        self,
        model: nn.Module | None,
        optimizer: Optimizer | None,
        name: str = "",
        options: Options | None = None,
    ) -> Observer:
        """Watch an optimizer, or each one that starts to train this model."""
        options = options or self._options
        if optimizer is not None and (known := self._observer_of(optimizer)) is not None:
            return known
        if optimizer is None and model is not None:
            self._models.append((weakref.ref(model), options))
        observer = Observer(self._sink, optimizer, model, self._guard, name, options=options)
        observer.find_models()
        observer.note_layers()
        self._find_schedules(observer, optimizer)
        self.all.append(observer)
        if optimizer is None and model is not None and not self._in_pass:
            for each in optimizers_of(model):
                self._adopt(each)
        return observer

    def _find_schedules(self, observer: Observer, optimizer: Optimizer | None) -> None:
        if optimizer is not None and not self._making:  # schedulers that were created before the watch began
            observer.schedules += map(weakref.ref, model_layers.schedules_of(optimizer))

    def _observer_of(self, optimizer: Optimizer) -> Observer | None:
        for observer in self.all:  # a generator takes three times as long
            if observer.has(optimizer):
                return observer
        return None

    def _adopt(self, optimizer: Optimizer) -> Observer | None:
        """Return the observer of an optimizer that was not named explicitly. It is the one of the model that it trains,
        if that has no optimizer yet."""
        if is_within(optimizer, (each.optimizer for each in self.all)):
            return None
        held = set(map(id, model_layers.of_optimizer(optimizer)))
        for watched_model, options in self._models:
            model = watched_model()  # some of which have a length of 0, or none
            if model is not None and any(id(tensor) in held for tensor in model.parameters()):
                waiting = next((each for each in self.all if each.waits_for(model)), None)
                if waiting is not None:
                    waiting.adopt(optimizer)
                    self._find_schedules(waiting, optimizer)
                    return waiting
                return self.watch(model, optimizer, options=options)
        return self.watch(None, optimizer) if self._every_optimizer else None

    def _present(self) -> list[Observer]:
        """Return the list of all observers that still have something to observe, and end the runs of the others."""
        if any([observer.gone for observer in self.all]):
            for observer in [observer for observer in self.all if observer.gone]:
                if observer.settle():
                    self._sink.end(observer)
        return self.all

    # ---- callbacks from torch

    def on_optimizer(self, optimizer: Optimizer) -> None:
        self._present()
        self._making = True
        self._adopt(optimizer)
        self._making = False

    def before_calling_backward(self) -> None:
        """Remove the logs from torch's stack, which is impossible within a method of a tensor."""
        for observer in self.all:
            observer.recorder.take_off()

    def before_backward(self, roots: Roots) -> None:
        self._in_pass = True
        self.join()
        if self._every_optimizer and (self._unclaimed or not self._present()):
            self._look_for_weights(roots)
        self._claim_reached(roots)
        for observer in self._of_this_thread():
            observer.before_backward(roots)
            observer.recorder.before_backward(roots)

    def after_backward(self, roots: Roots) -> None:
        self._in_pass = False
        present = self._of_this_thread()
        trained = [observer.after_backward(roots) for observer in present]
        self._passes += 1
        self._unclaimed = True not in trained
        for observer, trains in zip(present, trained, strict=True):
            observer.recorder.after_backward(trains=trains)
            if trains:
                observer.latest = self._passes
                if not observer.claimed:
                    self._claim(observer)
        self.join()

    # ---- several optimizers of one model

    def may_join(self, observer: Observer, *, alone: bool = False) -> bool:
        """Return whether another optimizer may step for the first time after the same backward pass, as its gradients
        came from the same passes; `alone`: or has done so."""
        of = observer.first_of
        return any(
            other is not observer and other.thread == observer.thread and other.optimizer is not None
            and (
                (not other.next_step and (self._in_pass or (other.latest, other.micro_batches) == of))
                or (not alone and other.waits_to_join and other.first_of == of)
            )
            for other in self.all
        )  # fmt: skip

    def join(self) -> None:
        """Merge optimizers that stepped for the first time after the same backward pass, and train one model."""
        waiting = [each for each in self.all if each.waits_to_join]
        if len(waiting) < 2:
            return
        first = waiting[0]
        members = [each for each in waiting if each.is_beside(first)]
        tensors = [tensor for each in members for tensor in each.all_parameters()]
        if len(members) < 2 or not model_layers.modules_with(tensors):
            return
        for each in members:
            self._sink.forget(each)
        self.all[self.all.index(first)] = JoinedObserver(self._sink, members, self._guard)
        self.all = [each for each in self.all if each not in members]

    def _of_this_thread(self) -> list[Observer]:
        """Return the observers whose gradients may be read here: torch crashes if one thread reads a gradient while the
        backward pass of another writes it."""
        here, observers = threading.get_ident(), self.all
        if len(observers) == 1 and (only := observers[0]).thread == here and not only.gone:
            return [only]
        return [observer for observer in self._present() if observer.thread == here]

    def _claim_reached(self, roots: Roots) -> None:
        """Find what was created in one thread, and is now trained in this one."""
        here = threading.get_ident()
        strangers = [each for each in self.all if not each.claimed and each.thread != here]
        if not strangers or self._searches[here] >= FRUITLESS:
            return
        self._searches[here] += 1
        reached = set(map(id, reached_weights(roots.tensors)))
        for observer in strangers:
            if any(id(tensor) in reached for tensor in observer.all_parameters()):
                self._claim(observer)

    def _claim(self, observer: Observer) -> None:
        """Restrict reading the gradients of an observer to this thread from here on."""
        here = threading.get_ident()
        observer.thread, observer.claimed = here, True
        others = {each.ident for each in threading.enumerate()} - {here}
        held = set(map(id, observer.all_parameters()))
        for other in (each for each in self.all if each.claimed and each.thread in others):
            if not held.isdisjoint(map(id, other.all_parameters())):
                self._give_up("two threads train the same parameters")
                return

    def _look_for_weights(self, roots: Roots) -> None:
        """Observe the weights that a backward pass reaches, as they belong to no torch optimizer."""
        tried = [observer for each in self._tried if (observer := each()) is not None]
        if sum(not each.next_step for each in tried) >= FRUITLESS:
            return
        held = {id(tensor) for observer in self.all for tensor in observer.all_parameters()}
        candidate = [tensor for tensor in reached_weights(roots.tensors) if id(tensor) not in held]
        if not candidate:
            return
        if around := model_layers.modules_with(candidate):
            observer = self.watch(around[0], None)
        else:
            observer = Observer(self._sink, None, None, self._guard, tensors=candidate, options=self._options)
            self.all.append(observer)
        self._tried.append(weakref.ref(observer))

    def before_step(self, optimizer: Optimizer, arguments: Any, named: Any) -> Any:
        self.before_calling_backward()
        if (observer := self._observer_of(optimizer)) is None:
            if (observer := self._adopt(optimizer)) is None:
                return None
            if self._unheard_clip is not None:
                observer.was_clipped(*self._unheard_clip)
                self._unheard_clip = None
        if self._in_pass:  # it steps within the backward pass, on a GPU in one of torch's threads
            observer.latest = self._passes + 1
        elif not observer.claimed or (observer.thread != threading.get_ident() and not observer.micro_batches):
            self._claim(observer)  # a thread that only makes the steps, for passes of another, does not claim it
        self._sink.before_step(observer, optimizer)
        return observer.before_step(optimizer, arguments, named)

    def after_step(self, optimizer: Optimizer, arguments: Any, named: Any) -> None:
        if (observer := self._observer_of(optimizer)) is not None:
            observer.after_step(optimizer)
            if len(self.all) > 1:
                self._use(observer)
                if not self._in_pass and not self.may_join(observer, alone=True):
                    self.join()
                for each in self._of_this_thread():
                    each.recorder.resume()
            self._sink.after_step(observer, optimizer)

    def _use(self, observer: Observer) -> None:
        """Inform the other observers whose gradients come from the same backward pass that a step was made with it."""
        for other in self.all:
            if other is not observer and other.latest == observer.latest:
                other.used_elsewhere(observer)

    def before_scaled_step(self, optimizer: Optimizer) -> None:
        if (observer := self._observer_of(optimizer)) is not None:
            observer.before_scaled_step()

    def after_scaled_step(self, optimizer: Optimizer) -> None:
        if (observer := self._observer_of(optimizer)) is not None:
            observer.after_scaled_step(optimizer)

    def on_clip(self, kind: str, limit: float, gradients: Sequence[Tensor], parameters: Sequence[Tensor]) -> None:
        clipped, is_observed = set(map(id, gradients or parameters)), False  # one clip may be for several optimizers
        for observer in self._of_this_thread():
            if not clipped:
                observer.setup.on_empty_clip()
            if observer.has_any(clipped) if gradients else observer.trains_any(clipped):
                observer.on_clip(kind, limit)
                is_observed = True
        if not is_observed:
            self._unheard_clip = kind, limit, clipped

    def after_clipping(self) -> None:
        for observer in self._of_this_thread():
            observer.after_clipping()

    def on_schedule(self, scheduler: LRScheduler) -> None:
        if (observer := self._observer_of(scheduler.optimizer)) is not None:
            observer.schedules.append(weakref.ref(scheduler))

    def before_copying(self) -> None:
        for observer in self.all:
            observer.births.passes.detach()

    def after_copying(self) -> None:
        for observer in self.all:
            observer.births.passes.attach()

    def on_compile(self, model: nn.Module) -> None:
        for observer in self.all:
            if any(each is model for each in observer.models):
                observer.births.passes.attach()

    def before_eval(self, module: nn.Module) -> None:
        for observer in self._of_this_thread():
            observer.before_eval(module)

    def on_seed(self, seed: Any) -> None:
        for observer in self._of_this_thread():
            observer.setup.on_seed(seed)

    def on_autocast(self, dtype: torch.dtype) -> None:
        if not torch.is_grad_enabled():
            return  # an evaluation
        for observer in self._of_this_thread():
            observer.autocast.on_autocast(dtype)

"""The steps of several optimizers of one model, merged into single ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch.optim import Optimizer

from gradstudio.core.row import loss_broke
from gradstudio.watching.hooks.torch_hooks import Roots
from gradstudio.watching.measuring.parameters import NO_LAYERS, Change, Gradient
from gradstudio.watching.steps.joined_optimizers import JoinedOptimizers, Parts, members_of, together
from gradstudio.watching.steps.script_facts import loss_of, rate_of
from gradstudio.watching.steps.sink import Sink
from gradstudio.watching.steps.step_observer import Observer, found_inf


class JoinedObserver(Observer):
    """Watches the optimizers of several observers from their first step on. A step is complete when all of them have
    stepped, or some of them by the next backward pass."""

    def __init__(self, sink: Sink, members: Sequence[Observer], guard: Callable[[Any], Any]) -> None:
        first = members[0]
        super().__init__(sink, None, None, guard, first.name, options=first.options)
        optimizers = [each for member in members for each in members_of(member.optimizer)]
        self._several = JoinedOptimizers(optimizers, lambda: self._on_gone(self._optimizer))
        self._optimizer = self._several.alive
        self._parts: Parts | None = None  # for optimizers that step within the backward pass
        self._stepped_in_scaler, self._in_scaler = True, first._in_scaler
        self.thread, self.claimed, self.latest = first.thread, True, max(each.latest for each in members)
        self.autocast, self._clock, self.told = first.autocast, first._clock, first.told
        self.schedules = [each for member in members for each in member.schedules]
        self._take_over(members)

    def _take_over(self, members: Sequence[Observer]) -> None:
        """Begin the run, and report the first step of all."""
        steps = [(member.parameters.as_given, member._first()) for member in members]
        for member in members:
            member.births.remove()
            member._release()
            member.joined = self
        if not self.bind():
            return
        place = {id(tensor): index for index, tensor in enumerate(self.parameters.as_given)}
        places = [[place[id(tensor)] for tensor in tensors] for tensors, _ in steps]
        self._rows = 1
        made = together([measured_step for _, measured_step in steps], places)
        self._sink.take(self, made.with_layers(self._shown.together))

    def has(self, optimizer: Optimizer) -> bool:
        return self._several.has(optimizer)

    def before_backward(self, roots: Roots) -> None:
        self._step.read()
        if self._step.is_ready:
            self._finish(skipped=self._was_skipped)  # not all of them have stepped
        super().before_backward(roots)

    def after_backward(self, roots: Roots) -> bool:
        if self._parts is not None and (whole := self._parts.whole()) is not None:
            self._roots = None
            self._finish_parts(roots, *whole)
            return True
        return super().after_backward(roots)

    def before_step(self, optimizer: Optimizer, arguments: Any, named: Any) -> Any:
        """One of the optimizers is about to step, after the backward pass or within it."""
        if self._roots is not None:
            self.deliver()
            if self._parts is None:
                self._parts = Parts(self._several.members, self.parameters.as_given, updates=self.options.updates)
            self._step.rate = rate_of(self._several.param_groups[0])
            gradient = self._parts.before(optimizer)
            if gradient.nonfinite:
                self._on_broken_part(self._roots, gradient)
            return
        if self._step.is_ready and id(optimizer) in self._several.skipped:
            self._finish(skipped=self._was_skipped)  # it steps again, without the others
        if not self._step.is_ready:
            self.deliver()
            self.make_ready()

    def _on_broken_part(self, roots: Roots, gradient: Gradient) -> None:
        step = self._step
        step.losses, step.scale, step.gradient = loss_of(roots), roots.scale, gradient._replace(layers=NO_LAYERS)
        step.explain(self.births.explain(), self.births.unknown)
        if self.options.spares_weights and not self._step.is_scaled:
            self._spare_weights()

    def after_step(self, optimizer: Optimizer) -> None:
        self._stepped_in_scaler = True
        if self._parts is not None and self._parts.after(optimizer):
            self._step.put_back()
            return
        if self._step.is_ready and self._several.on_step(optimizer, skipped=found_inf(optimizer)):
            self._finish(skipped=self._was_skipped)

    def _leave_to_scaler(self, optimizer: Optimizer) -> None:
        if self._several.on_step(optimizer, skipped=True):
            self._finish(skipped=True)

    @property
    def _was_skipped(self) -> bool:
        """Whether an update of the step was skipped."""
        return any(self._several.skipped.values()) or bool(self._step.left_out)

    def _finish_parts(self, roots: Roots, gradient: Gradient, change: Change, clipped: float) -> None:
        """Create the row of a step within the backward pass."""
        self.autocast.on_backward(roots.tensors, self._device, first=True)
        step = self._step
        step.losses, step.micro_batches, step.scale = loss_of(roots), 1, roots.scale
        step.gradient, step.clipped_norm = gradient, lambda: clipped
        if not gradient.nonfinite and not loss_broke(step.losses):
            self.births.all_finite()
        self._finish(skipped=bool(step.left_out), change=lambda: change)

    def _finish(self, *, skipped: bool, change: Callable[[], Change] | None = None) -> None:
        self._several.skipped.clear()
        super()._finish(skipped=skipped, change=change)

    def _last(self) -> None:
        self._step.read()
        if self._step.is_ready:
            self._finish(skipped=self._was_skipped)
        super()._last()

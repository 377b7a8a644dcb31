"""The step of a plain training loop, as the script of an experiment makes it, without what only measures. It runs on
real tensors and on tensors without memory alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from gradstudio.core.experiment import Experiment
from gradstudio.engine.generators import generator
from gradstudio.engine.own_model import trees
from gradstudio.engine.step import clipping, optimizers, sharpness_aware, weight_format
from gradstudio.engine.step.gradients import add_noise, centralize
from gradstudio.engine.subject import Subject

SEEN = 2  # micro-batches that are computed; all later ones take what the second takes


class PlainLoop:
    """Model, optimizer and data of an experiment, each parameter and each gradient a tensor of its own.

    `draw` returns the micro-batches of a step. `tell` hears the phases of the step, and `marks` which tensors are
    what."""

    def __init__(
        self,
        knobs: Experiment,
        subject: Subject,
        model: nn.Module,
        draw: Callable[[], Iterator[Any]],
        tell: Callable[[str], None] = lambda phase: None,
        marks: Callable[[Sequence[Tensor], str], None] = lambda tensors, part: None,
    ) -> None:
        self.knobs, self._subject, self._model, self._draw = knobs, subject, model, draw
        self._tell, self._marks = tell, marks
        named = subject.parameters(model)
        self._parameters = [parameter for _, parameter in named]
        # The optimizer of a script; on the CPU torch takes tensor by tensor.
        kind = optimizers.OPTIMIZERS[knobs.optimizer.kind]
        values: dict[str, Any] = optimizers.groups(knobs.optimizer)
        self._optimizer = kind(self._parameters, **values)
        self._noise = generator(knobs.run.seed, "gradient_noise")
        # what the clipping rules ask for, of gradients that are apart
        self._apart = SimpleNamespace(named=named, grads=[])
        marks([*model.parameters()], "parameters")
        marks([*model.buffers()], "data")

    def prepare(self) -> None:
        """Give the optimizer its state, which it makes at the first update."""
        self._give_gradients()
        self._optimizer.step()
        self._mark_state()
        if not self._keeps_gradients:
            self._zero_grad()

    def begin(self) -> None:
        """Make ready for a first step, of which `Tally` counts the state of the optimizer as if it was there before."""
        if self._keeps_gradients:
            self._give_gradients()

    def _give_gradients(self) -> None:
        for parameter in self._parameters:
            parameter.grad = torch.zeros_like(parameter)
        self._mark_gradients()

    @property
    def _keeps_gradients(self) -> bool:
        """Whether there are gradients between two steps."""
        return self.knobs.mistakes.never_zero_grad or self.knobs.studio_file is not None

    def step(self) -> None:
        """Make one optimizer step."""
        knobs, count = self.knobs, self.knobs.accumulation.steps
        self._tell("data")
        batches, origin = self._draw(), []
        if knobs.optimizer.sam_rho > 0:
            batches = list(batches)
            origin = self._climb(batches)
        if not knobs.mistakes.never_zero_grad:
            self._zero_grad()
        for number, batch in enumerate(batches):
            if number >= SEEN:
                break
            if knobs.mistakes.zero_grad_each_micro_batch:
                self._zero_grad()
            undivided = knobs.mistakes.unscaled_accumulation or knobs.mistakes.divide_each_micro_batch
            self._pass(batch, 1 if undivided else count)
            self._mark_gradients()
            self._tell("data")
        for tensor, value in origin:
            tensor.copy_(value)
        self._finish_gradient()
        self._tell("update")
        self._optimizer.step()
        weight_format.keep(self._parameters, knobs.precision.weights, knobs.run.seed, 0)
        self._mark_state()

    def _climb(self, batches: Sequence[Any]) -> list[tuple[Tensor, Tensor]]:
        """Make the first passes of sharpness-aware minimization, and move the weights. Return what is to come back, and
        its values."""
        knobs = self.knobs
        if not knobs.mistakes.never_zero_grad:
            self._zero_grad()
        for batch in batches[:SEEN]:
            self._pass(batch, knobs.accumulation.steps)
            self._mark_gradients()
        self._tell("clip")
        moved = [(parameter, parameter.grad) for parameter in self._parameters if parameter.grad is not None]
        norm = nn.utils.get_total_norm([grad for _, grad in moved])
        held = [*(parameter.detach() for parameter in self._parameters), *self._model.buffers()]
        origin = [(tensor, tensor.clone()) for tensor in held]
        with torch.no_grad():
            for parameter, grad in moved:
                parameter.add_(grad * (knobs.optimizer.sam_rho / (norm + sharpness_aware.EPS)))
        self._tell("data")
        return origin

    def _zero_grad(self) -> None:
        self._optimizer.zero_grad(set_to_none=self.knobs.studio_file is None)  # as a script does

    def _pass(self, batch: Any, divisor: int) -> None:
        knobs = self.knobs
        self._tell("forward")
        loss = self._subject.compute(self._model, batch, knobs).loss
        if knobs.loss.weight != 1:
            loss = loss * knobs.loss.weight
        if divisor > 1:
            loss = loss / divisor
        if self._scales:
            loss = loss * knobs.precision.init_scale
        self._tell("backward")
        loss.backward()

    def _finish_gradient(self) -> None:
        """Unscale, change and clip the gradients. A loss scaler does so in place, as this does."""
        knobs = self.knobs
        grads = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        if self._scales:
            self._tell("unscale")
            for grad in grads:
                grad.mul_(1 / knobs.precision.init_scale)
        self._tell("clip")
        if knobs.gradients.centralize:
            centralize(grads)
        if knobs.gradients.noise_std > 0:
            add_noise(grads, knobs.gradients.noise_std, self._noise)
        self._clip(grads)

    @property
    def _scales(self) -> bool:
        return self.knobs.precision.dtype == "fp16" and self.knobs.precision.scaling != "none"

    def _clip(self, grads: list[Tensor]) -> None:
        limits = self.knobs.clipping
        if limits.kind == "norm":
            nn.utils.clip_grad_norm_(self._parameters, limits.max_norm)
        elif limits.kind == "value":
            nn.utils.clip_grad_value_(self._parameters, limits.clip_value)
        elif limits.kind != "none":
            named = [(name, parameter) for name, parameter in self._apart.named if parameter.grad is not None]
            clipped: Any = SimpleNamespace(named=named, grads=grads)
            clipping.CLIPPING[limits.kind](clipped, limits)

    def _mark_gradients(self) -> None:
        self._marks([parameter.grad for parameter in self._parameters if parameter.grad is not None], "gradients")

    def _mark_state(self) -> None:
        states = self._optimizer.state.values()
        self._marks([value for state in states for value in state.values() if isinstance(value, Tensor)], "optimizer")


def parts(whole: Any, count: int, size: int) -> Iterator[Any]:
    """Yield the micro-batches of one large batch, each in memory of its own; the large batch itself where it is one."""
    if count == 1:
        yield whole
        return
    for number in range(count):
        place = slice(number * size, (number + 1) * size)
        yield trees.mapped(whole, lambda tensor, place=place: tensor[place].clone())

"""A copy of a trainer's model that is measured in its place, and batches that the trainer does not lose: nothing here
leaves a trace in training."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from gradstudio.core.gauge_samples import Unmeasurable
from gradstudio.core.studio_file import StudioFileError
from gradstudio.engine.step.accumulation import join
from gradstudio.engine.tasks.acting import Acting
from gradstudio.engine.tasks.task import Dataset
from gradstudio.engine.trainer import Trainer

EXAMPLES = 32  # in a gauge batch, at least
_SEED = 6_000_011  # added to run.seed, beside the offsets of engine/generators.py


class Standin:
    """A copy of the model, without autocast and loss scale: its gradient is the one before fp16 rounds it. Vectors
    contain all parameters, one after the other."""

    def __init__(self, trainer: Trainer, dtype: torch.dtype, device: str) -> None:
        self.device, self.dtype = device, dtype
        self.model = copy.deepcopy(trainer.model).to(device, dtype)
        for module in self.model.modules():
            if hasattr(module, "checkpointing"):
                # The same numbers, without a second forward pass for every product.
                module.checkpointing = False  # pyright: ignore[reportArgumentType]
        self.parameters = [parameter for _, parameter in trainer.subject.parameters(self.model)]
        self._trainer = trainer

    @torch.no_grad()
    def follow(self, weights: Tensor | None = None) -> None:
        """Copy the trainer's current model, or its weights from a flat tensor of the same layout."""
        trainer = self._trainer
        here = (
            trainer.flat.parameters if weights is None else trainer.flat.layout.views(weights, trainer.flat.parameters)
        )
        for mine, its in zip(self.parameters, here, strict=True):
            mine.copy_(its)
        for mine, its in zip(self.model.buffers(), trainer.model.buffers(), strict=True):
            mine.copy_(its)
        for mine, its in zip(self.model.parameters(), trainer.model.parameters(), strict=True):
            if not its.requires_grad:  # a studio file may change it
                mine.copy_(its)

    def loss(self, batch: Any) -> Tensor:
        """Return the loss that the run minimizes, for one batch."""
        trainer = self._trainer
        try:
            with _TwiceDifferentiable():
                loss = trainer.subject.plain_loss(self.model, batch, trainer.experiment, self._place)
        except StudioFileError as fault:  # such as its own float32 tensor, while the copy is float64
            raise Unmeasurable(str(fault)) from None
        return loss * trainer.experiment.loss.weight

    def _place(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.device, self.dtype if tensor.is_floating_point() else None)

    def gradient(self, batch: Any) -> Tensor:
        """Return the gradient of a batch, (parameters,)."""
        return _concatenate(
            torch.autograd.grad(self.loss(batch), self.parameters, materialize_grads=True, allow_unused=True)
        )

    def curvature(self, batch: Any) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """Return the gradient, and a function that multiplies a vector by the Hessian of the loss: the gradient of
        (gradient . vector), by a second backward pass (Pearlmutter 1994)."""
        first = torch.autograd.grad(
            self.loss(batch), self.parameters, create_graph=True, materialize_grads=True, allow_unused=True
        )
        gradient = _concatenate(first)
        if not gradient.requires_grad:
            return gradient, torch.zeros_like

        def product(vector: Tensor) -> Tensor:
            second = torch.autograd.grad(
                gradient,
                self.parameters,
                vector.to(gradient),
                retain_graph=True,
                materialize_grads=True,
                allow_unused=True,
            )
            return _concatenate(second)

        return gradient.detach(), product

    @property
    def weights(self) -> Tensor:
        """The weights, (parameters,)."""
        return _concatenate(tuple(parameter.detach() for parameter in self.parameters))


class _TwiceDifferentiable(TorchFunctionMode):
    """Attention in plain maths, as the fused kernel has no second derivative. torch's own switch for that affects every
    thread of the process; this one affects only its own thread."""

    def __torch_function__(self, func: Callable, types: object, args: tuple = (), kwargs: dict | None = None) -> object:
        if func is F.scaled_dot_product_attention:
            return _attention(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _attention(query: Tensor, key: Tensor, value: Tensor, is_causal: bool = False) -> Tensor:
    """Return softmax(query key' / sqrt(width)) value, with the bits of torch's own plain maths."""
    root = math.sqrt(math.sqrt(1 / query.shape[-1]))
    scores = (query * root) @ (key * root).transpose(-2, -1)
    if is_causal:
        scores = scores + scores.new_full(scores.shape[-2:], -math.inf).triu(1)
    return scores.softmax(-1) @ value


def recurrent(model: nn.Module) -> bool:
    """Return whether a part of the model is torch's own recurrent network, whose kernels on an accelerator have no
    second derivative."""
    return any(isinstance(module, nn.RNNBase) for module in model.modules())


def batches_to_come(trainer: Trainer) -> list[Any]:
    """Return the micro-batches of the next step, which the trainer will draw again."""
    ahead = copy.copy(trainer)
    ahead.task = _apart(trainer.task, lambda source: torch.Generator().set_state(source.get_state()))
    with trainer.subject.preserved_random_state():
        return ahead.next_batches()


def gauge_batch(trainer: Trainer) -> Any:
    """Return the batch for the gauges: the same examples at all steps of a run, from separate generators. A model that
    acts plays them in its current state, with the same random numbers."""
    seed = trainer.experiment.run.seed + _SEED
    task = _apart(trainer.task, lambda source: torch.Generator().manual_seed(seed))
    if isinstance(task, Dataset):
        task.order, task.position = task.order[:0], 0  # an epoch of its own
    if isinstance(task, Acting):
        task.passes = 1
    if not trainer.subject.judged:
        with trainer.subject.preserved_random_state():
            return task.next_batch(trainer.model)
    draws = -(-EXAMPLES // trainer.experiment.problem.batch_size)
    return join([task.next_batch(trainer.model) for _ in range(draws)])


def _apart(task: Any, other: Callable[[torch.Generator], torch.Generator]) -> Any:
    """Return the same task with its own generators. Everything else in a task is replaced rather than mutated."""
    own = copy.copy(task)
    for name, value in vars(task).items():
        if isinstance(value, torch.Generator):
            setattr(own, name, other(value))
    return own


def _concatenate(parts: tuple[Tensor, ...]) -> Tensor:
    return torch.cat([part.to_dense().flatten() for part in parts])  # that of an embedding may be sparse

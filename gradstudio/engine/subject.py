"""The subject of a trainer: the built-in model, data and loss that the knobs select. Those of a studio file are in
own_model/."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from gradstudio.core.experiment import Experiment
from gradstudio.core.row import Activation, Layer
from gradstudio.core.unknown import UNKNOWN
from gradstudio.engine import memory, models
from gradstudio.engine.gauges import activations, attention, head, time_gradient
from gradstudio.engine.models.initialization import initialize
from gradstudio.engine.step import class_weights, losses, policy_loss, precision
from gradstudio.engine.step.accumulation import plain_gradients
from gradstudio.engine.step.testing import TestSetFigures
from gradstudio.engine.tasks import TASKS
from gradstudio.engine.tasks.acting import LASTED
from gradstudio.engine.tasks.task import Dataset


class BatchLoss(NamedTuple):
    """The loss of a batch in fp32, and the function for its figures in a row: it returns the accuracy and the largest
    absolute output, and those of a policy (step/policy_loss.py), as tensors."""

    loss: Tensor
    figures: Callable[[], tuple[Tensor, ...]]


class Subject(Protocol):
    """A model, its data and its loss. `task` draws the batches. `recorded`: passes may be recorded and replayed."""

    task: Any
    recorded: bool
    judged: bool  # whether there is an accuracy, and batches that can be joined

    def build(self, knobs: Experiment) -> nn.Module:
        """Return the model with its initial weights, on the CPU. torch's global generator has the seed of the run."""
        ...

    def parameters(self, model: nn.Module) -> list[tuple[str, nn.Parameter]]:
        """Return the trained parameters, with their names, in forward order."""
        ...

    def layers(self, model: nn.Module) -> tuple[Layer, ...]:
        """Return a description of each of `parameters`."""
        ...

    def compute(self, model: nn.Module, batch: Any, knobs: Experiment) -> BatchLoss:
        """Compute the loss of a batch, without loss.weight."""
        ...

    def shares(self, batches: Sequence[Any]) -> Tensor | None:
        """Return the factor on the loss of each micro-batch, (micro-batches,), whose mean is 1, that makes each example
        count by its weight; None if all have the same weight."""
        ...

    def gradients(self, loss: Tensor, parameters: Sequence[nn.Parameter]) -> Sequence[Tensor | None]:
        """Return the gradient of each parameter, None if the loss does not use it. No .grad is changed."""
        ...

    def end(self) -> None:
        """Restore torch's state before the run; KnobError if the run has changed it."""
        ...

    def check(self, model: nn.Module, knobs: Experiment) -> None:
        """Raise KnobError if the device cannot train the model with these live values."""
        ...

    def saved_bytes(self, model: nn.Module, knobs: Experiment) -> int:
        """Return the bytes that a pass saves of a micro-batch, if they are many; KnobError if a step exceeds the free
        memory."""
        ...

    def activations(self, model: nn.Module, batch: Any, knobs: Experiment) -> tuple[Activation, ...]:
        """Measure the activations of a batch, without a trace in training."""
        ...

    def attention(self, model: nn.Module, batch: Any, knobs: Experiment) -> tuple[float, float]:
        """Measure the largest logit of the attentions and their smallest entropy, without a trace in training."""
        ...

    def time_gradient(self, model: nn.Module, batch: Any, knobs: Experiment) -> float:
        """Measure how much of the gradient reaches the first time step, without a trace in training."""
        ...

    def test(self, model: nn.Module, knobs: Experiment) -> TestSetFigures:
        """Measure the model, which is in evaluation mode, on the test set."""
        ...

    def plain_loss(self, model: nn.Module, batch: Any, knobs: Experiment, place: Callable[[Tensor], Tensor]) -> Tensor:
        """Compute the loss of a batch without autocast and loss.weight, for a copy of the model that may have another
        format and device: `place` brings tensors there."""
        ...

    def own_random_state(self) -> AbstractContextManager[None]:
        """Return the context of a step, in which torch's global generators have the run's own state."""
        ...

    def preserved_random_state(self) -> AbstractContextManager[None]:
        """Return the context of a measurement in a step, after which they are unchanged."""
        ...

    def random_state(self) -> list[Tensor]:
        """Return the run's own state of torch's global generators; [] if nothing draws from them."""
        ...

    def set_random_state(self, states: list[Tensor]) -> None:
        """Set the state returned by `random_state`."""
        ...


class BuiltIn:
    """A built-in network that learns a built-in task."""

    recorded = judged = True

    def __init__(self, knobs: Experiment, device: str) -> None:
        self.device = device
        self.task = TASKS[knobs.problem.task](knobs.problem, knobs.run.seed, device)
        self.loss = losses.choose(knobs.loss.kind, self.task.goal)
        self.class_weights: Tensor | None = None  # (classes,)
        balanced = knobs.loss.class_weights == "balanced" and knobs.applies("loss.class_weights")
        if balanced and isinstance(self.task, Dataset):
            self.class_weights = class_weights.balanced_weights(self.task.training.targets, self.task.shape.outputs)
        self._shape = self.task.shape._replace(outputs=self.task.shape.outputs * self.loss.outputs)

    def build(self, knobs: Experiment) -> nn.Module:
        if self.device == "cpu":
            memory.check_weights(knobs, self._shape)
        model = self.network(knobs)
        initialize(model, knobs.model, self.task.sample())
        return model

    def network(self, knobs: Experiment) -> models.Network:
        """Return the model with weights as torch draws them."""
        return models.MODELS[knobs.model.kind](knobs.model, self._shape)

    def parameters(self, model: nn.Module) -> list[tuple[str, nn.Parameter]]:
        return models.named_parameters(model)

    def layers(self, model: nn.Module) -> tuple[Layer, ...]:
        return models.layers(model)

    def compute(self, model: nn.Module, batch: Any, knobs: Experiment) -> BatchLoss:
        inputs, targets = batch
        with precision.autocast(knobs.precision, self.device):
            outputs = model(inputs)
        outputs = outputs.float()
        loss = self._loss(outputs, targets, knobs)

        def figures() -> tuple[Tensor, ...]:
            found = self.loss.accuracy(outputs, targets), torch.linalg.vector_norm(outputs, math.inf)
            return (*found, *policy_loss.figures(outputs, targets)) if self.task.goal == "reward" else found

        return BatchLoss(loss, figures)

    def shares(self, batches: Sequence[Any]) -> Tensor | None:
        if self.class_weights is None or len(batches) == 1:
            return None
        return class_weights.shares(self.class_weights, [batch.targets for batch in batches])

    def gradients(self, loss: Tensor, parameters: Sequence[nn.Parameter]) -> Sequence[Tensor | None]:
        return plain_gradients(loss, parameters)

    def end(self) -> None:
        pass

    def check(self, model: nn.Module, knobs: Experiment) -> None:
        precision.check(model, self.task.sample(2), knobs.precision, self.device, knobs.model.kind)

    def saved_bytes(self, model: nn.Module, knobs: Experiment) -> int:
        if self.device != "cpu":
            return 0
        return memory.check_step(knobs, self._shape, model, self.task.sample(2))

    def activations(self, model: nn.Module, batch: Any, knobs: Experiment) -> tuple[Activation, ...]:
        acts = self.task.goal == "reward"  # after the end of an episode its states are zeros
        with precision.autocast(knobs.precision, self.device):
            return activations.sample(
                model, knobs.model.activation, batch.inputs, batch.targets[..., LASTED].flatten() > 0 if acts else None
            )

    def attention(self, model: nn.Module, batch: Any, knobs: Experiment) -> tuple[float, float]:
        with precision.autocast(knobs.precision, self.device):
            return attention.look(model, batch.inputs)

    def time_gradient(self, model: nn.Module, batch: Any, knobs: Experiment) -> float:
        inputs, targets = (part[: time_gradient.EXAMPLES] for part in batch)
        return time_gradient.look(model, inputs, lambda leaf: self.compute(model, (leaf, targets), knobs)[0])

    def test(self, model: nn.Module, knobs: Experiment) -> TestSetFigures:
        with precision.autocast(knobs.precision, self.device), head.collect_head_inputs(model) as tensors:
            inputs, targets = self.task.test_batch(model)
            tensors.clear()  # a task in which the model acts has called it for its actions
            outputs = model(inputs).float()
        alike = head.mean_cosine(tensors[0]) if self.task.goal in ("classes", "value") else UNKNOWN
        return TestSetFigures(losses.accuracy(self.loss, outputs, targets), alike)

    def plain_loss(self, model: nn.Module, batch: Any, knobs: Experiment, place: Callable[[Tensor], Tensor]) -> Tensor:
        outputs = model(place(batch.inputs))
        return self._loss(outputs, place(batch.targets), knobs)

    def _loss(self, outputs: Tensor, targets: Tensor, knobs: Experiment) -> Tensor:
        if self.class_weights is not None:
            return class_weights.cross_entropy(outputs, targets, self.class_weights)
        if self.task.goal == "reward":
            return policy_loss.loss(outputs, targets, knobs.loss, knobs.problem.passes)
        loss = self.loss.value(outputs, targets, knobs.loss.eps)
        if knobs.loss.z_loss > 0 and knobs.applies("loss.z_loss"):
            loss = loss + knobs.loss.z_loss * losses.squared_log_z(outputs)
        return loss

    def own_random_state(self) -> AbstractContextManager[None]:
        return nullcontext()

    preserved_random_state = own_random_state

    def random_state(self) -> list[Tensor]:
        return []

    def set_random_state(self, states: list[Tensor]) -> None:
        pass

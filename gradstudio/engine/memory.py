"""The memory use of training on the CPU, computed before it is allocated. A system that runs out of memory kills a
program silently, so anything that cannot fit is rejected with a message. Every figure is a lower bound: whatever is
rejected could never have been trained here. An accelerator itself reports what does not fit."""

from __future__ import annotations

import contextlib

import numpy as np
import torch
from torch import Tensor, nn

from gradstudio.core.experiment import Experiment
from gradstudio.core.free_memory import UNKNOWN_SIZE, free
from gradstudio.core.history import BLOCK, COLUMNS, LAYER_METRICS
from gradstudio.core.knobs import KnobError
from gradstudio.engine import models
from gradstudio.engine.passes.operation_calls import storage_of
from gradstudio.engine.shape import Shape

UNCHECKED = 256 << 20  # bytes: smaller requests are not checked any further
SPARE = 64 << 20  # bytes that the rows leave for everything else
_FLOAT = 4  # bytes
# Tensors of the weights' size that an optimizer keeps, besides weights, gradients and the weights before the update.
_STATES = {"sgd": 0, "rmsprop": 1, "adam": 2, "adamw": 2, "lion": 1, "muon": 1, "stable_adamw": 2, "schedule_free": 3}


def check_weights(knobs: Experiment, shape: Shape) -> None:
    """Raise KnobError if the weights, with everything of their size, exceed the free memory."""
    model = knobs.model
    if 12 * model.depth * model.width**2 * 5 * _FLOAT < UNCHECKED:  # a transformer has 12 square matrices per layer
        return
    with torch.device("meta"):  # nothing is drawn and no memory allocated
        count = sum(weight.numel() for weight in models.MODELS[model.kind](model, shape).parameters())
    taken = count * _FLOAT * (3 + _STATES[knobs.optimizer.kind])
    _check(taken, f"{count:,} weights and what is kept of them", "model.width or model.depth")


def check_step(knobs: Experiment, shape: Shape, model: nn.Module, inputs: Tensor) -> int:
    """Return the bytes that a forward pass saves of each micro-batch until its backward pass; 0 if that is little.
    KnobError if a step exceeds the free memory. `inputs` are two examples of the task."""
    steps, examples = shape.time_steps, knobs.problem.batch_size
    times = examples * steps / inputs.shape[1]  # a policy sees one time step at a time
    batches = check_batches(knobs, shape)
    most = times * inputs.shape[1] * knobs.model.depth * 32 * (knobs.model.width + steps) * _FLOAT
    if knobs.model.checkpointing or most < UNCHECKED:
        return 0
    kept = int(times * _saved_bytes_per_example(model, inputs, most=2 * free() / times))
    if knobs.precision.dtype != "fp32":
        kept //= 2
    _check(batches + kept, "a step", "problem.batch_size, problem.seq_len, model.width or model.depth")
    return kept


def check_batches(knobs: Experiment, shape: Shape) -> int:
    """Return the bytes of the inputs of a step; KnobError if they exceed the free memory."""
    examples = knobs.problem.batch_size * knobs.accumulation.steps
    taken = examples * shape.time_steps * shape.features * _FLOAT
    if taken > UNCHECKED:
        _check(taken, "the batches of a step", "accumulation.steps, problem.batch_size or problem.seq_len")
    return taken


def check_rows(knobs: Experiment) -> None:
    """Raise KnobError if the rows of all steps exceed the free memory. The layers' rows go to disk."""
    taken = knobs.run.steps * len(COLUMNS) * np.dtype(float).itemsize
    if taken > UNCHECKED:
        _check(taken, f"the rows of {knobs.run.steps:,} steps", "run.steps")


def check_more_rows(layers: int) -> None:
    """Raise MemoryError if there is no room for the next block of rows, for example after days, or if the disk rejects
    those of the layers."""
    taken = BLOCK * (len(COLUMNS) * np.dtype(float).itemsize + len(LAYER_METRICS) * layers * _FLOAT) + SPARE
    if not fits(taken):
        raise MemoryError(f"the rows of {BLOCK:,} more steps do not fit into the {free() / 1e6:,.0f} MB that are free.")


def fits(taken: int) -> bool:
    """Return whether this many bytes are free."""
    return taken <= free()


def free_of(device: str) -> int | None:
    """Return the bytes of memory that are free on a device; None if the system does not report it."""
    if device.startswith("cuda"):
        with contextlib.suppress(RuntimeError):
            return torch.cuda.mem_get_info(device)[0]
    bytes_free = free()
    return bytes_free if device == "cpu" and bytes_free < UNKNOWN_SIZE else None


def _check(taken: int, what: str, lower: str) -> None:
    limit = free()
    if taken > limit:
        raise KnobError(
            f"{what} would take {taken / 1e9:,.1f} GB of memory or more; allowed: what fits into the "
            f"{limit / 1e9:,.1f} GB that are free, so lower {lower}"
        )


def _saved_bytes_per_example(model: nn.Module, inputs: Tensor, most: float) -> int:
    """Return the bytes that a forward pass saves of each example for its backward pass. Only tensors that grow with the
    number of examples count, up to a sum of about `most`. The passes leave no trace in the model."""
    training = model.training
    model.eval()  # a batch norm would update its statistics
    try:
        one, two = (_saved_bytes(model, inputs[:count], most * count) for count in (1, 2))
    finally:
        model.train(training)
    return sum(max(larger - smaller, 0) for smaller, larger in zip(one, two, strict=False))


class _Enough(Exception):
    """The count has reached its limit."""


def _saved_bytes(model: nn.Module, inputs: Tensor, most: float) -> list[int]:
    """Return the bytes of each tensor that a forward pass saves, in order, 0 for a part of an earlier one. Stops once
    the sum reaches `most`."""
    own = {storage_of(tensor) for tensor in (*model.parameters(), *model.buffers())}
    tensors: list[Tensor] = []  # so that no storage is reused
    sizes, total = list[int](), [0]

    def keep(tensor: Tensor) -> Tensor:
        tensors.append(tensor.detach())
        sizes.append(0 if storage_of(tensor) in own else tensor.untyped_storage().nbytes())
        own.add(storage_of(tensor))
        total[0] += sizes[-1]
        if total[0] > most:
            raise _Enough
        return tensors[-1]  # the tensor itself may belong to the graph, which would then refer to itself forever

    with contextlib.suppress(_Enough), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(inputs)
    return sizes

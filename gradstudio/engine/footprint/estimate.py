"""The footprint of an experiment: one step of the plain loop on tensors that have a shape and no memory. Only in a
separate process (child.py): the parts of torch that it needs take a second to import."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from gradstudio.core.experiment import Experiment
from gradstudio.core.footprint import Footprint
from gradstudio.engine import runtime
from gradstudio.engine.footprint.plain_loop import SEEN, PlainLoop, parts
from gradstudio.engine.footprint.tally import Tally, saving
from gradstudio.engine.own_model import trees
from gradstudio.engine.own_model.subject import OwnModel
from gradstudio.engine.subject import BuiltIn, Subject
from gradstudio.engine.tasks.task import Batch
from gradstudio.engine.torch_internals import memory_and_work, seen_operations

_FEW = 2  # number of examples that are actually drawn, to see their shape


@cache
def possible() -> bool:
    """Return whether this torch has what an estimate needs: tensors of 8 TB without memory."""
    # internals are tried here: in such a context a trial would see no numbers
    if not seen_operations.can_intercept_operations() or memory_and_work.without_memory() is None:
        return False
    memory_and_work.count_multiplications()
    with without_memory():
        large = torch.empty(1 << 40, 1 << 12) @ torch.empty(1 << 12, 2)
        return large.untyped_storage().nbytes() == 1 << 43


def estimate(knobs: Experiment) -> Footprint:
    """Return the memory use of a step of the experiment on the CPU. Only if `possible`."""
    runtime.prepare(knobs.run.deterministic)
    if knobs.studio_file is None:
        return of_built_in(knobs)
    try:
        return of_own_model(knobs, without_memory())
    except (RuntimeError, TypeError, NotImplementedError):
        # The file reads its numbers, which tensors without memory lack: it is counted on real ones.
        return of_own_model(knobs, nullcontext())


def without_memory() -> AbstractContextManager[Any]:
    """Return a context in which torch makes tensors without memory."""
    make = memory_and_work.without_memory()
    assert make is not None
    return make()


def of_built_in(knobs: Experiment) -> Footprint:
    few = BuiltIn(
        knobs.with_values({"problem.batch_size": min(_FEW, knobs.problem.batch_size), "problem.samples": 1}), "cpu"
    )
    example = few.task.next_batch(_UniformPolicy(few.task.shape.outputs))
    count, size = knobs.accumulation.steps, knobs.problem.batch_size

    def draw() -> Iterator[Any]:
        whole = Batch(*(torch.empty(count * size, *one.shape[1:], dtype=one.dtype) for one in example))
        tally.mark(whole, "data")
        for batch in parts(whole, count, size):
            tally.mark(batch, "data")
            yield batch

    tally = Tally()
    with without_memory(), tally:
        order = torch.empty(few.task.order_length(count * size), dtype=torch.int64)
        tally.mark([order], "data")
        return _count_bytes(knobs, few, draw, tally)


def of_own_model(knobs: Experiment, memory: AbstractContextManager[Any]) -> Footprint:
    assert knobs.studio_file is not None
    torch.manual_seed(knobs.run.seed)
    subject = OwnModel(knobs.studio_file, knobs, "cpu")

    def draw() -> Iterator[Any]:
        for _ in range(knobs.accumulation.steps):
            batch = subject.task.next_batch(nn.Module()).tree
            tally.mark(trees.tensors(batch), "data")
            yield batch

    tally = Tally()
    with memory, tally:
        return _count_bytes(knobs, subject, draw, tally)


def _count_bytes(knobs: Experiment, subject: Subject, draw: Callable[[], Iterator[Any]], tally: Tally) -> Footprint:
    def tell(phase: str) -> None:
        if tally.phase == "backward":
            tally.mark(loop.gradients(), "gradients")
        tally.phase = phase

    loop = PlainLoop(knobs, subject, draw, tell)
    tally.mark(loop.model.parameters(), "parameters")
    tally.mark(loop.model.buffers(), "data")
    tally.mark(loop.gradients(), "gradients")
    if knobs.clipping.on_spike == "rewind":
        loop.step()  # which keeps its existing state in every later step
    tally.begin()
    with saving(tally):
        loop.step()
    tally.mark(loop.state(), "optimizer")
    footprint, count = tally.footprint(), knobs.accumulation.steps
    return replace(footprint, multiplications=footprint.multiplications * count // min(count, SEEN))


class _UniformPolicy(nn.Module):
    """A substitute for a model that acts: all actions are equally likely."""

    def __init__(self, actions: int) -> None:
        super().__init__()
        self.actions = actions

    def forward(self, seen: Tensor) -> Tensor:
        return torch.zeros(*seen.shape[:2], self.actions)

"""The trainer of one rank: it takes its share of each batch, and its gradients are averaged with the others'."""

from __future__ import annotations

import math
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from gradstudio.core import ranks_allowed
from gradstudio.core.experiment import Experiment
from gradstudio.core.history import LOOK_EVERY
from gradstudio.core.rank_figures import RankFigures
from gradstudio.core.row import Row
from gradstudio.core.unknown import UNKNOWN
from gradstudio.engine.ranks.collectives import Collectives
from gradstudio.engine.ranks.kept_step import KEPT, KeptStep
from gradstudio.engine.ranks.synced_batch_norm import Link, sync
from gradstudio.engine.snapshot import Snapshot
from gradstudio.engine.step.reading import Reading
from gradstudio.engine.tasks.task import Batch, spoilt
from gradstudio.engine.trainer import Trainer

ONE_BUCKET = 1 << 20  # MB: all gradients are reduced in one call, so that calls can be counted


class _WithSpare(nn.Module):
    """A model with an additional parameter that no forward pass uses."""

    def __init__(self, model: nn.Module, device: str) -> None:
        super().__init__()
        self.model = model
        self.spare = nn.Parameter(torch.zeros(1, device=device))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.model(inputs)


class RankTrainer(Trainer):
    """Trains like Trainer, as one of the ranks that make the calls of `together`.

    `leaves` is called if this rank leaves the training loop while others continue. `alone_with` is the step that this
    rank repeats without such calls."""

    alone = False
    alone_with: KeptStep | None = None

    def __init__(self, experiment: Experiment, rank: int, together: Collectives, leaves: Callable[[], None]) -> None:
        super().__init__(experiment.with_value("run.device", together.device))
        self._late = None  # a GPU's rows are read at once too: the ranks wait for each other in every step anyway
        self.rank, self.world, self._together, self._leaves = rank, together.world, together, leaves
        self._without_batch = False  # whether this step is made by the others alone
        self.kept: deque[KeptStep] = deque(maxlen=KEPT)  # the latest steps
        self._own = self.flat.new()  # this rank's own gradient
        self._local, self._averaged = self.flat.new(), self.flat.new()  # before and after the latest reduction
        places = self.flat.layout.views(self._local, self.flat.parameters)
        self._places = dict(zip(self.flat.parameters, places, strict=True))
        self._left = self._reductions = self._bytes = 0
        self._seconds, self._looking, self._drift = 0.0, 0.0, UNKNOWN  # looking: seconds of measuring the drift
        self._uneven, self._factor, self._example_weight = False, 1.0, 1.0  # of the share in this step
        made, self._has_buffers = experiment.distributed, any(True for _ in self.model.buffers())
        self._link = Link(together)
        if made.sync_batch_norm:
            sync(self.model, self._link)
        if made.own_order:
            self.task.order_generator.manual_seed(experiment.run.seed + rank)
        self._parallel = DistributedDataParallel(
            _WithSpare(self.model, self.device) if made.unused_parameter else self.model,
            process_group=together.group, bucket_cap_mb=ONE_BUCKET, find_unused_parameters=made.find_unused,
        )  # fmt: skip
        self._parallel.register_comm_hook(None, self._reduce)

    def figures(self, row: Row) -> RankFigures:
        """Return this rank's own measurements of the latest step, which has this row."""
        norm = torch.linalg.vector_norm(self._own.double()).item() / row.scale
        computing = max(row.step_seconds - self._seconds - self._looking, 0.0)
        return RankFigures(
            norm, self._seconds, self._reductions, self._bytes, self._drift, computing, self._example_weight,
            self._last - self.step,
        )  # fmt: skip

    def weigh(self, mean: float) -> float:
        """Return a mean over this rank's examples by its weight in that over all; UNKNOWN without examples."""
        return UNKNOWN if self._without_batch else mean * self._factor

    def own_loss(self, row: Row) -> float:
        """Return this rank's loss in the latest step, which has this row; UNKNOWN if it had no batch."""
        return UNKNOWN if self._without_batch else row.loss

    @property
    def _last(self) -> int:
        """Number of steps that this rank takes part in."""
        made, steps = self.experiment.distributed, self.experiment.run.steps
        ends = made.runs_out_at > 0 and not made.join and self.rank == self.world - 1
        return min(made.runs_out_at, steps) if ends else steps

    def advance(self) -> list[Row]:
        if self.alone_with is None:
            self.kept.append(KeptStep(Snapshot.take(self)))
        return super().advance()

    def next_batches(self) -> list[Any]:
        self._suffer()
        batches = super().next_batches()
        problem, number = self.experiment.problem, self.step + self.passed
        poisoned = problem.nan_every > 0 and number > 0 and number % problem.nan_every == 0
        self._begin(len(batches))
        self._divide_up(number)
        return [self._share(batch, poisoned) for batch in batches]

    def _with_nan(self, batches: list[Any]) -> list[Any]:
        return batches  # the NaN is in a share, not in the whole

    def _begin(self, batches: int) -> None:
        """Start the measurements of a step."""
        dropped = batches // 2 if self.experiment.mistakes.drop_last_micro_batches else 0
        self._left = batches - dropped
        self._reductions, self._bytes, self._seconds, self._looking = 0, 0, 0.0, 0.0
        self._own.zero_()
        self._averaged.copy_(self.flat.gradients)
        look = self.step % LOOK_EVERY == 0 and self.alone_with is None
        self._drift = self._measure_drift() if look else UNKNOWN

    def _suffer(self) -> None:
        """Stall or exit, if requested, or if the batches of this rank have run out."""
        made = self.experiment.distributed
        out = self.rank == self.world - 1 and 0 < made.runs_out_at <= self.step
        self._without_batch = out and made.join
        if out and not made.join:
            self._leaves()
            _wait_for_the_end()
        if made.fault == "none" or (self.rank, self.step) != (made.fault_rank, made.fault_step):
            return
        if made.fault == "ends":
            os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))  # on Windows any signal ends it like this
        _wait_for_the_end()

    def _divide_up(self, number: int) -> None:
        """Determine this rank's share of the batches with this number."""
        made, size = self.experiment.distributed, self.experiment.problem.batch_size
        self._uneven = made.uneven_every > 0 and (number + 1) % made.uneven_every == 0
        share = len(range(size)[ranks_allowed.share_of_rank(self.rank, self.world, size, uneven=self._uneven)])
        self._factor = share * self.world / size if made.weigh_shares else 1.0
        self._example_weight = self._factor * size / self.world / share

    def _share(self, batch: Batch, poisoned: bool) -> Batch:
        made = self.experiment.distributed
        place = ranks_allowed.share_of_rank(
            0 if made.same_data else self.rank, self.world, len(batch.targets), uneven=self._uneven
        )
        inputs, targets = (part[place].contiguous() for part in batch)
        if self._without_batch:  # so that it makes all calls of the others; its gradient is set to zero
            return Batch(inputs[:2], targets[:2])
        return Batch(spoilt(inputs) if poisoned and self.rank == made.nan_rank else inputs, targets)

    def _measure_drift(self) -> float:
        """Return the distance of the weights from those of rank 0, relative to their norm."""
        first = self.flat.weights.data.clone()
        self._looking = self._together.broadcast(first)
        distance = torch.linalg.vector_norm((self.flat.weights.data - first).double()).item()
        norm = torch.linalg.vector_norm(first.double()).item()
        return distance / norm if norm else distance

    # ---- the passes

    def _zero_grad(self) -> None:
        super()._zero_grad()
        self._averaged.zero_()

    def _forward_backward(self, batch: Sequence[Any], divisor: int, share: Tensor | None = None) -> Tensor:
        self.observer.call("forward")
        self.observer.call("backward")
        before, self._left = self._reductions, self._left - 1
        forward, backward = self._contexts()
        if self.alone_with is not None:
            loss, figures = self.compute(*batch, divisor=divisor)
            loss.backward()
            self.flat.cleared = False
            return figures.detach()
        if self._has_buffers:
            self._meet()
        with forward:
            self.called, self._link.on = self._parallel, True
            try:
                loss, figures = self.compute(*batch, divisor=divisor)
            finally:
                self.called, self._link.on = self.model, False
            with backward:
                loss.backward()
        self.flat.cleared = False
        if self._reductions > before:
            self._add_own(self._local)
            self._averaged.copy_(self.flat.gradients)
        return figures.detach()

    def _loss_weight(self) -> float:
        return super()._loss_weight() * self._factor

    def _meet(self) -> None:
        """Wait for all ranks. DDP takes the buffers of rank 0 in its forward pass, in calls in which a waiting rank
        would be invisible."""
        self._seconds += self._together.meet()

    def _contexts(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        """Return the contexts of the forward pass and of the backward pass in it."""
        made = self.experiment.distributed
        waits = made.never_synced or made.clip_before_all_reduce or (made.no_sync and self._left > 0)
        within = self._parallel.no_sync() if waits else nullcontext()
        return (nullcontext(), within) if made.forward_outside_no_sync else (within, nullcontext())

    def _add_own(self, gradients: Tensor) -> None:
        """Add to this rank's own gradient everything since the latest reduction. A reduction to NaN hides it."""
        if not self._without_batch and math.isfinite(torch.linalg.vector_norm(self._averaged).item()):
            self._own.add_(gradients).sub_(self._averaged)

    def _reduce(self, state, bucket):  # torch checks the names, and accepts no annotations that are strings
        """Average a bucket of gradients, and count it: DDP's communication hook. A rank without a batch contributes
        zeros, as torch's Join does for it."""
        if self._without_batch:
            bucket.buffer().zero_()
        for parameter, grad in zip(bucket.parameters(), bucket.gradients(), strict=True):
            if parameter in self._places:  # all but a spare one
                self._places[parameter].copy_(grad)
        buffer = bucket.buffer()
        self._average(buffer, buffer.numel())
        done = torch.futures.Future()  # without a device: nothing is in flight on it after the call
        done.set_result(buffer)
        return done

    def _average(self, tensor: Tensor, entries: int) -> None:
        """Average a tensor over the ranks, in place, with the bits of DDP without a hook."""
        tensor.mul_(1 / self.world)
        self._seconds += self._together.all_reduce(tensor)
        self._reductions += 1
        self._bytes += entries * tensor.element_size()

    # ---- between the passes and the update

    def _finish_reduction(self, reading: Reading, scale: float) -> None:
        made, gradients = self.experiment.distributed, self.flat.gradients
        if self.alone_with is not None:
            if self.alone_with.gradient is not None:
                gradients.copy_(self.alone_with.gradient)
            return
        if not self._reductions:
            self._add_own(gradients)
        if made.clip_before_all_reduce:
            self._clip_and_reduce(reading, scale)
        if made.divide_by_world_size:
            gradients.div_(self.world)
        self.kept[-1].gradient = gradients.clone()

    def _clip_and_reduce(self, reading: Reading, scale: float) -> None:
        """Clip this rank's gradient and average it afterwards. The mean of the unclipped gradients is only measured."""
        gradients, knobs = self.flat.gradients, self.experiment.clipping
        true, before = gradients.clone(), (self._reductions, self._bytes)
        self._average(true, 0)
        self._reductions, self._bytes = before  # the time stays: this call waits for the others, and the next does not
        reading.gradient(true, scale)
        if knobs.kind != "none":
            self.observer.call("clip")
            reading.clipping[knobs.kind](self.flat, knobs, self.clip_memory)
        self._average(gradients, int(self.flat.layout.sizes.sum()))
        if knobs.kind != "none":
            reading.on_clip(true, gradients)

    def _clip(self, reading: Reading, *, measured: bool = True) -> None:
        knobs = self.experiment
        if knobs.distributed.clip_before_all_reduce:
            return
        if not knobs.applies("distributed.clip_shards") or not knobs.distributed.clip_shards:
            super()._clip(reading, measured=measured)
            return
        self.observer.call("clip")
        before = self._unclipped_gradients.copy_(self.flat.gradients)
        for rank in range(self.world):
            self._clip_shard(rank, knobs.clipping.max_norm)
        reading.on_clip(before, self.flat.gradients)

    def _clip_shard(self, rank: int, limit: float) -> None:
        """Clip the rows that a rank would own under fully_shard, by their own norm."""
        chunks = [grad.chunk(self.world) for grad in self.flat.grads]
        shard = [parts[rank] for parts in chunks if rank < len(parts)]
        norm = nn.utils.get_total_norm(shard)
        for part in shard:
            part.mul_((limit / (norm + 1e-6)).clamp(max=1.0))


def _wait_for_the_end() -> None:
    """Do nothing until this process is ended."""
    while True:
        time.sleep(3600)

"""Snapshots: the whole state of a run before a step, to be restored later. It includes weights, buffers, gradients,
optimizer, loss scaler, schedule, every generator and the position in the data. A run that continues from a snapshot
repeats itself to the last bit on the CPU."""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from gradstudio.core.experiment import Experiment
from gradstudio.core.gradient_spikes import Spikes
from gradstudio.core.studio_file import StudioFile
from gradstudio.engine.step import loss_scale, optimizers
from gradstudio.engine.step.checks import Requests
from gradstudio.engine.step.spike_policy import SpikePolicy
from gradstudio.engine.tasks.acting import Acting
from gradstudio.engine.tasks.task import Batch, Dataset
from gradstudio.engine.trainer import Trainer

_GENERATORS = ("order_generator", "noise_generator", "outlier_generator")  # of a task


class SnapshotError(ValueError):
    """The bytes contain no snapshot of this trainer's kind of run."""


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The state before `step`, the number of the next step. `experiment` has the values in force at the step
    before it."""

    on_disk: ClassVar[bool] = False
    moving: ClassVar[bool] = False

    step: int
    experiment: Experiment
    taken: int
    passed: int
    weights: Tensor  # (flat.layout.length,)
    gradients: Tensor  # likewise: a loop that never clears them adds to those of the last step
    buffers: list[Tensor]  # and the untrained parameters
    optimizer: dict[str, Any]  # its state of the flat weights
    scaler: dict[str, Any]
    order: Tensor  # of the epoch
    position: int
    generators: list[Tensor]
    chance: list[Tensor] = field(default_factory=list)  # torch's global generators, if the run draws from them
    norms: list[float] = field(default_factory=list)  # for detecting a spike
    earlier: dict[str, Any] = field(default_factory=dict)  # weights to which a spike returns
    clip_memory: dict[str, Tensor] = field(default_factory=dict)  # norms that clipping compares with
    drawn: list[Tensor] = field(default_factory=list)  # the batch that a policy drew, and still makes passes over
    passes_made: int = 0
    frozen: list[int] = field(default_factory=list)  # those trained parameters that a file has frozen

    @classmethod
    def take(cls, trainer: Trainer) -> Snapshot:
        """Return the state of a trainer between two steps. It shares nothing with the trainer."""
        task = trainer.task
        generators = [*(getattr(task, name) for name in _GENERATORS), trainer.gradient_noise]
        return cls(
            step=trainer.step, experiment=trainer.experiment, taken=trainer.taken, passed=trainer.passed,
            weights=trainer.flat.weights.data.clone(), gradients=trainer.flat.gradients.clone(),
            buffers=[tensor.clone() for tensor in trainer.state],
            optimizer=optimizers.state(trainer.optimizer),
            scaler=loss_scale.state(trainer.scaler),
            # an order is never written to
            order=getattr(task, "order", _NO_ORDER), position=getattr(task, "position", 0),
            generators=[generator.get_state() for generator in generators],
            chance=trainer.subject.random_state(),
            norms=list(trainer.spike_policy.spikes.norms),
            earlier=trainer.spike_policy.earlier,  # which is never written to
            clip_memory=dict(trainer.clip_memory),  # whose tensors are never written to
            drawn=getattr(task, "unfinished", []),
            passes_made=getattr(task, "passes_made", 0),
            frozen=[index for index, each in enumerate(trainer.flat.parameters) if not each.requires_grad],
        )  # fmt: skip

    def restore(self, trainer: Trainer) -> None:
        """Rewind a trainer of the same run to this state. Tensors are written in place: recorded passes read them."""
        task, before = trainer.task, trainer.experiment
        trainer.settle()  # unread rows belong to steps that are undone
        trainer.experiment = self.experiment
        trainer.step, trainer.taken, trainer.passed = self.step, self.taken, self.passed
        trainer.requests = Requests()
        trainer.moved &= torch.equal(trainer.flat.weights.data, self.weights)
        trainer.flat.weights.data.copy_(self.weights)
        for index, parameter in enumerate(trainer.flat.parameters):
            parameter.requires_grad = index not in self.frozen
        for tensor, value in zip(trainer.state, self.buffers, strict=True):
            tensor.copy_(value)
        optimizers.restore(trainer.optimizer, self.optimizer)
        optimizers.change(trainer.optimizer, self.experiment.optimizer)
        changed = (before.loss, before.precision) != (self.experiment.loss, self.experiment.precision)
        if changed or loss_scale.in_mid_step(trainer.scaler):
            trainer.scaler = loss_scale.build(self.experiment.precision, trainer.device)
            trainer.passes.forget()
        loss_scale.restore(trainer.scaler, self.scaler, trainer.optimizer)
        trainer.flat.gradients.copy_(self.gradients)
        trainer.flat.cleared = False
        trainer.forget_changes()
        if isinstance(task, Dataset):
            task.order, task.position = self.order, self.position
        if isinstance(task, Acting):
            task.drawn, task.passes_made = Batch(*self.drawn) if self.drawn else None, self.passes_made
        for name, state in zip(_GENERATORS, self.generators, strict=False):
            getattr(task, name).set_state(state)
        trainer.gradient_noise.set_state(self.generators[-1])
        trainer.spike_policy = SpikePolicy(Spikes(self.norms), self.earlier)
        trainer.clip_memory = dict(self.clip_memory)
        trainer.subject.set_random_state(self.chance)

    def fits(self, trainer: Trainer) -> bool:
        """Return whether a trainer of the same kind of experiment can be brought to this state, which may come from
        another device."""
        other = Snapshot.take(trainer)
        parts = [
            [each.weights, each.gradients, *each.buffers, *each.generators, *each.chance] for each in (self, other)
        ]
        return [(part.shape, part.dtype) for part in parts[0]] == [(part.shape, part.dtype) for part in parts[1]]

    @cached_property
    def nbytes(self) -> int:
        """Memory of the snapshot in bytes. The order of an epoch counts in each of its snapshots, though they
        share it."""
        tensors = [self.weights, self.gradients, *self.buffers, self.order, *self.generators, *self.chance, *self.drawn]
        tensors += [*self.optimizer.values(), *self.earlier.get("optimizer", {}).values()]
        tensors += [*self.earlier.get("buffers", ()), *([self.earlier["weights"]] if self.earlier else [])]
        return sum(tensor.nbytes for tensor in tensors if isinstance(tensor, Tensor))

    def pack(self) -> bytes:
        """Return the snapshot as bytes of tensors and plain values only; `unpack` reads them."""
        content = {each.name: getattr(self, each.name) for each in fields(self)}
        content["experiment"] = self.experiment.changed_knobs()
        buffer = io.BytesIO()
        torch.save(content, buffer)
        return buffer.getvalue()

    @classmethod
    def unpack(cls, data: bytes, device: str, file: StudioFile | None = None) -> Snapshot:
        """Return the packed snapshot, on a device. `file` is the studio file that the run trains. SnapshotError if the
        bytes are damaged, or would use more memory than their size."""
        try:
            _check_sizes(data)
            content = torch.load(io.BytesIO(data), map_location=device, weights_only=True)
            in_force = Experiment(studio_file=file).with_values(content.pop("experiment"))
            for name in ("generators", "chance"):
                content[name] = [state.cpu() for state in content.get(name, [])]
            content["order"] = content["order"].cpu()
            snapshot = cls(**content, experiment=in_force)
            if snapshot.nbytes > len(data):  # a tensor may show one number at many positions
                raise SnapshotError(f"{len(data):,} bytes hold tensors of {snapshot.nbytes:,}")
            return snapshot
        except Exception as fault:  # torch.load raises arbitrary exceptions
            raise SnapshotError(f"damaged snapshot: {str(fault)[:200]}") from None


def _check_sizes(data: bytes) -> None:
    """Raise SnapshotError for an archive that unpacks to more than its own size. torch.save does not compress."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts = archive.infolist()
    packed = any(part.compress_type != zipfile.ZIP_STORED for part in parts)
    if packed or sum(part.file_size for part in parts) > len(data):
        raise SnapshotError("it would unpack to more than it is")


_NO_ORDER = torch.empty(0, dtype=torch.int64)

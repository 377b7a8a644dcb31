"""Parameters that are sharded among processes, as in FSDP or tensor parallelism: each process measures its own shard,
where it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gradstudio.core.unknown import UNKNOWN
from gradstudio.engine.torch_internals.flat_shards import Piece, is_piece, pieces_of
from gradstudio.watching.measuring.parameters import Change, Gradient, Parameters
from gradstudio.watching.script.living_objects import living_objects


def are_sharded(tensors: Sequence[Tensor]) -> bool:
    """Return whether this process may have only a shard of any of these."""
    return any(_is_dtensor(tensor) or is_piece(tensor) for tensor in tensors)


def whole_shapes(tensors: Sequence[Tensor]) -> list[tuple[int, ...]]:
    """Return the shape of each tensor as the model was made, whatever part of it this process has."""
    pieces = _pieces(tensors)
    return [pieces[id(tensor)].shape if id(tensor) in pieces else tuple(tensor.shape) for tensor in tensors]


def _pieces(tensors: Sequence[Tensor]) -> dict[int, Piece]:
    """Return what tensors of FullyShardedDataParallel are pieces of, by their ids."""
    pieces = {id(tensor): Piece(tuple(tensor.shape), ()) for tensor in tensors if is_piece(tensor)}
    every = pieces_of(living_objects(nn.Module)) if pieces else ()
    return pieces | {id(tensor): piece for tensor, piece in every if id(tensor) in pieces}


def parameters_of_shards(kind: type[Parameters], tensors: Sequence[Tensor]) -> Parameters:
    """Return the measurement of the shards that are in this process, by the class `kind`."""
    return type(f"Parted{kind.__name__}", (_LocalShards, kind), {})(tensors)


def share_of(
    parameters: Parameters, ranks: int, grouped: Callable[[list[int]], list[list[int]]] | None = None
) -> dict[str, list[int]]:
    """Return for each layer how many entries this rank has, whether it is sharded, and whether this rank's shard
    counts: of several ranks with the same shard, one does. If unknown, as for a shard that belongs to only some ranks,
    the number is -1. `grouped` makes layers of the parameters; without it, each is one."""
    share: dict[str, list[int]] = {"sizes": parameters.sizes.tolist(), "parted": [], "counted": []}
    pieces = _pieces(parameters.as_given)
    for place, tensor in enumerate(parameters.as_given):
        placements: Any = getattr(tensor, "placements", ())
        mesh: Any = getattr(tensor, "device_mesh", None)
        at = mesh.get_coordinate() if mesh is not None else None
        if (piece := pieces.get(id(tensor))) is not None:
            is_parted, is_counted = len(piece.ranks) != 1, 0 in piece.ranks
            is_known = piece.is_copied or len(piece.ranks) == ranks
        else:
            is_parted = any(each.is_shard() for each in placements)
            is_known = mesh is not None and at is not None and mesh.mesh.numel() == ranks
            copies = [each.is_replicate() and where > 0 for each, where in zip(placements, at or (), strict=False)]
            is_counted = not any(copies)
        if is_parted and not is_known:
            share["sizes"][place] = -1
        share["parted"].append(int(is_parted))
        share["counted"].append(int(is_counted))
    if grouped is None:
        return share
    sizes, parted, counted = (grouped(values) for values in share.values())
    alike = [len({*zip(one, other, strict=True)}) == 1 for one, other in zip(parted, counted, strict=True)]
    whole = [sum(each) if same and min(each) >= 0 else -1 for each, same in zip(sizes, alike, strict=True)]
    return {"sizes": whole, "parted": [max(each) for each in parted], "counted": [max(each) for each in counted]}


class _LocalShards(Parameters):
    """Measures stand-ins: plain tensors that are this process' shards of the parameters, with its shards of the
    gradients."""

    may_wait = True

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._whole = list(tensors)
        super().__init__([_stand_in(tensor) for tensor in tensors])
        self._refresh()

    @property
    def as_given(self) -> list[Tensor]:
        return self._whole

    def _refresh(self) -> bool:
        """Point the stand-ins to the current parameters and gradients. Return whether the gradients are sharded like
        their parameters."""
        are_alike = True
        with torch.no_grad():
            for tensor, stand_in in zip(self._whole, self.tensors, strict=True):
                now, gradient = local_part(tensor), tensor.grad
                if now.data_ptr() != stand_in.data_ptr() and now.shape == stand_in.shape:
                    stand_in.data = now
                if gradient is not None:
                    is_alike = getattr(gradient, "placements", ()) == getattr(tensor, "placements", ())
                    gradient = local_part(gradient)
                    if gradient.shape != stand_in.shape or gradient.dtype != stand_in.dtype:
                        is_alike, gradient = False, None
                    are_alike = are_alike and is_alike
                stand_in.grad = gradient
        return are_alike

    def marks(self) -> list[int]:
        self._refresh()
        return super().marks()

    def unmoved_places(self, marks: list[int]) -> set[int]:
        return {place for place in super().unmoved_places(marks) if self._numels[place]}  # or it is on other ranks

    def weight_marks(self) -> list[int]:
        self._refresh()
        return super().weight_marks()

    def all_gone(self, marks: list[int] | None = None) -> bool:
        self._refresh()
        return super().all_gone(marks)

    def measure_gradient(self, scale: float = 1.0) -> Gradient:
        return super().measure_gradient(scale if self._refresh() else UNKNOWN)

    def measure_gradient_later(self, scale: float = 1.0) -> Callable[[], Gradient]:
        return super().measure_gradient_later(scale if self._refresh() else UNKNOWN)

    def glance_at_gradient(self) -> Gradient:
        return self.measure_gradient()  # a single rank does not know whether all of it is finite

    def keep_weights(self) -> None:
        self._refresh()
        super().keep_weights()

    def keep_weights_and_norm_later(self, *, keep: bool = True) -> Callable[[], float]:
        alike, norm = self._refresh(), super().keep_weights_and_norm_later(keep=keep)
        return norm if alike else lambda: UNKNOWN

    def measure_change_later(self, layers: np.ndarray) -> Callable[[], Change]:
        self._refresh()
        return super().measure_change_later(layers)


def _is_dtensor(tensor: Tensor) -> bool:
    return hasattr(tensor, "to_local") and hasattr(tensor, "placements")


def local_part(tensor: Any) -> Tensor:
    """Return the shard of a tensor that is in this process, without communication. Only outside of autograd."""
    local = tensor.to_local() if _is_dtensor(tensor) else tensor
    return local.wait() if hasattr(local, "wait") else local  # it may be in flight


def _stand_in(tensor: Tensor) -> Tensor:
    with torch.no_grad():
        return local_part(tensor).detach()

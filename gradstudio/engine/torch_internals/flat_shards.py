"""The pieces of parameters in FullyShardedDataParallel: it puts those of a module into one flat tensor, of which each
process has a piece. With `use_orig_params` each parameter is what that piece has of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from torch import Tensor, nn


class Piece(NamedTuple):
    """What a tensor is a piece of: the shape of the whole, and the number of processes that share it, 0 if unknown."""

    shape: tuple[int, ...]
    ranks: int


def is_piece(tensor: Tensor) -> bool:
    """Return whether a tensor is such a piece, or the whole of it where nothing is divided."""
    return getattr(tensor, "_fsdp_flattened", False)


def pieces_of(modules: Iterable[nn.Module]) -> Iterator[tuple[Tensor, Piece]]:
    """Yield the pieces that wrappers among these modules have left."""
    for module in modules:
        handle: Any = vars(module).get("_handle")
        flat: Any = getattr(handle, "flat_param", None)
        if not isinstance(flat, Tensor):
            continue
        ranks = handle.world_size if getattr(handle, "uses_sharded_strategy", True) else 1
        shapes = [tuple(shape) for shape in getattr(flat, "_shapes", ())]
        yield flat, Piece((sum(getattr(flat, "_numels", ())),), ranks)
        yield from zip(getattr(flat, "_params", None) or (), [Piece(shape, ranks) for shape in shapes], strict=False)

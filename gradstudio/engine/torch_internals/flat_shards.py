"""The pieces of parameters in FullyShardedDataParallel: it puts those of a module into one flat tensor, of which each
process has a piece. With `use_orig_params` each parameter is what that piece has of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch.distributed as dist
from torch import Tensor, nn


class Piece(NamedTuple):
    """What a tensor is a piece of: the shape of the whole, the ranks that have a piece each, () if unknown, and whether
    other ranks have the same pieces."""

    shape: tuple[int, ...]
    ranks: tuple[int, ...]
    is_copied: bool = False


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
        strategy = getattr(getattr(handle, "_sharding_strategy", None), "name", "")
        ranks = tuple(dist.get_process_group_ranks(handle.process_group)) if strategy else ()
        of = (ranks[:1], True) if strategy == "NO_SHARD" else (ranks, "HYBRID" in strategy)
        yield flat, Piece((sum(getattr(flat, "_numels", ())),), *of)
        whole = [Piece(tuple(shape), *of) for shape in getattr(flat, "_shapes", ())]
        yield from zip(getattr(flat, "_params", None) or (), whole, strict=False)

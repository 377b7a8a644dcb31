"""The store through which the processes of a training found each other."""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from gradstudio.engine.torch_internals.internal import Internal, check

_FOUND_WITHIN = timedelta(seconds=5)


def _find_store() -> Callable[[], Any]:
    from torch.distributed import distributed_c10d

    default_store: Any = distributed_c10d._get_default_store
    check(callable(default_store))
    return default_store


STORE = Internal(
    "torch.distributed.distributed_c10d._get_default_store",
    "The processes of a watched training may each have a run of their own",
    "the figures of each are right",
    _find_store,
)


def store() -> Any:
    """Return the store of the processes that train together; None if there is none. Only if torch.distributed is
    initialized."""
    if (find := STORE.get()) is not None:
        return find()
    host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    return dist.TCPStore(host, int(port), None, False, _FOUND_WITHIN) if host and port else None


def box(name: str, within: Any) -> Any:
    """Return a store with this name within a store."""
    return dist.PrefixStore(name, within)

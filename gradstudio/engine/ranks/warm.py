"""Imported once by the server that begins the ranks, which are copies of it: what they need is there at their start."""

from __future__ import annotations

import torch._dynamo  # noqa: F401 - DistributedDataParallel imports it, in a second

from gradstudio.core import compiled
from gradstudio.engine.ranks import rank_process, rank_trainer

__all__ = ["rank_process", "rank_trainer"]
compiled.compile_all()

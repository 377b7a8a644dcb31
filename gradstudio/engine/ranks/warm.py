"""Imported once by the server that begins the ranks, which are copies of it: what they need is there at their start."""

from __future__ import annotations

import torch

from gradstudio.core import compiled
from gradstudio.engine.ranks import rank_process, rank_replay, rank_trainer

__all__ = ["rank_process", "rank_replay", "rank_trainer"]
compiled.compile_all()
torch.compile(abs)  # imports the compiler of torch, as DistributedDataParallel does, in a second

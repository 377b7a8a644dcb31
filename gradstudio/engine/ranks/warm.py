"""Imported once by the server that begins the ranks, which are copies of it: what they need is there at their start."""

from __future__ import annotations

import os

# Read by whatever asks torch for GPUs. Without it the question alone opens the driver, which the ranks, as copies of
# this server, could then not use.
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")

# ruff: isort: split
import torch

from gradstudio.core import jit
from gradstudio.engine.ranks import rank_process, rank_replay, rank_trainer

__all__ = ["rank_process", "rank_replay", "rank_trainer"]
jit.compile_all()
torch.compile(abs)  # imports the compiler of torch, as DistributedDataParallel does, in a second

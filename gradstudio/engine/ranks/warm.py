"""Imported once by the server from which the ranks are forked: they start with everything already imported."""

from __future__ import annotations

import os

# Read by any query of torch for GPUs. Without it the query alone initializes the driver, which forks of this server
# could then not use.
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")

# ruff: isort: split
import torch

from gradstudio.core import jit
from gradstudio.engine.ranks import rank_process, rank_replay, rank_trainer

__all__ = ["rank_process", "rank_replay", "rank_trainer"]
jit.compile_all()
torch.compile(abs)  # imports torch's compiler, like DistributedDataParallel, in a second

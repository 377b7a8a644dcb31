"""Set torch up for a run, for the whole process: threads and repeatable algorithms."""

from __future__ import annotations

import warnings

import torch

from gradstudio.engine import THREADS
from gradstudio.engine.torch_internals import device_kernels

_preparations = 0


def preparations() -> int:
    """Return a number that changes whenever torch was set up for another run."""
    return _preparations


def prepare(deterministic: bool) -> None:
    """Set torch up for a run. The switches belong to the process, so the run that starts last decides."""
    global _preparations
    _preparations += 1  # before and after: a concurrent reader has seen neither the old state nor the new one
    torch.set_num_threads(int(THREADS))
    torch.set_default_dtype(torch.float32)  # a studio file that was trained before may have set these two
    torch.set_float32_matmul_precision("highest")
    # The same as torch.use_deterministic_algorithms, which also imports torch's compiler, for a second.
    torch.set_deterministic_debug_mode("error" if deterministic else "default")
    torch.backends.cudnn.deterministic = deterministic
    torch.backends.cudnn.benchmark = False
    device_kernels.leave_fresh_memory_alone()
    if torch.cuda.is_available():  # the weights are in one tensor with gaps (passes/flat.py), so cuDNN copies them
        warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk")
    _preparations += 1


def out_of_memory(fault: BaseException) -> bool:
    """Return whether an exception says that memory is exhausted; on the CPU torch has no class for that."""
    if isinstance(fault, (torch.OutOfMemoryError, MemoryError)):
        return True
    try:
        return "can't allocate memory" in str(fault)
    except BaseException:  # one from a studio file, which fails to describe itself
        return False

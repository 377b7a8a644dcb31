"""What is set for the whole process before a run: threads and repeatable algorithms."""

from __future__ import annotations

import torch

from gradstudio.engine import THREADS


def prepare(deterministic: bool) -> None:
    """Set torch up for a run. These switches belong to the process, so the run that starts last decides."""
    torch.set_num_threads(int(THREADS))
    # As torch.use_deterministic_algorithms does, which imports torch's compiler besides: a second, for what nobody uses here.
    torch.set_deterministic_debug_mode("error" if deterministic else "default")
    torch.backends.cudnn.deterministic = deterministic
    torch.backends.cudnn.benchmark = False
    # torch would fill every fresh tensor with NaN, which costs time and finds only faults in torch itself.
    torch.utils.deterministic.fill_uninitialized_memory = False  # pyright: ignore[reportAttributeAccessIssue]


def out_of_memory(fault: BaseException) -> bool:
    """Whether an exception says that memory is used up; on the CPU torch has no class of its own for that."""
    return isinstance(fault, (torch.OutOfMemoryError, MemoryError)) or "can't allocate memory" in str(fault)

"""Where several ranks train: each on its own GPU, or all on the CPU. Nothing here inspects the machine."""

from __future__ import annotations

from typing import NamedTuple

from gradstudio.core.knobs import KnobError
from gradstudio.core.text import plural


class Placement(NamedTuple):
    """The device of each rank. `backend` is that of a second process group, for tensors on those devices; "" if gloo's
    group does everything. `notice`: why `auto` chose the CPU although there are GPUs, "" if there is nothing to report.
    """

    devices: tuple[str, ...]
    backend: str = ""
    notice: str = ""


def place(choice: str, ranks: int, gpus: int, *, nccl: bool) -> Placement:
    """Return where the ranks train with run.device = `choice`. `gpus` is the number of CUDA devices, `nccl` whether
    torch has NCCL. KnobError if a GPU is requested and not every rank can have one."""
    cpu = Placement(("cpu",) * ranks)
    if choice == "cpu":
        return cpu
    _, _, number = choice.partition(":")
    first = int(number or 0)
    problem = _problem(ranks, gpus, first, nccl=nccl)
    if not problem:
        return Placement(tuple(f"cuda:{first + rank}" for rank in range(ranks)), "nccl")
    if choice == "auto":
        return cpu._replace(notice=f"The {ranks} ranks train on the CPU: {problem}." if gpus else "")
    asked = f"run.device = {choice} is not allowed with distributed.ranks = {ranks}"
    raise KnobError(f"{asked}: {problem}; allowed: {_fewer(gpus - first, nccl=nccl)}run.device=cpu")


def _problem(ranks: int, gpus: int, first: int, *, nccl: bool) -> str:
    """Return why not every rank can have a GPU; "" if it can."""
    if gpus <= first:
        return f"there is no cuda:{first} here" if gpus else "there is no CUDA device here"
    if gpus - first < ranks:
        count = plural(gpus - first, "GPU is", "GPUs are")
        return f"each rank takes a GPU of its own, and {count} here{f' from cuda:{first} on' if first else ''}"
    return "" if nccl else "this build of torch has no NCCL, which takes gradients from GPU to GPU"


def _fewer(gpus: int, *, nccl: bool) -> str:
    """Return the numbers of ranks for which there is a GPU each, as the start of a list; "" if there are none."""
    if gpus < 1:
        return ""
    return f"distributed.ranks = {f'1 to {gpus}' if gpus > 1 and nccl else 1}, "

"""The calls in which the ranks wait for each other, and their torch.distributed groups."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup, Store  # pyright: ignore[reportPrivateImportUsage]

from gradstudio.core.knobs import KnobError
from gradstudio.core.rank_placement import Placement, place
from gradstudio.engine import devices

FOREVER = timedelta(days=30)  # for a call: the supervisor of the ranks ends them
STARTS = 60.0  # seconds allowed for NCCL to connect the GPUs
_INSTEAD = "allowed: run.device=cpu, or distributed.ranks=1"


def placement(choice: str, ranks: int) -> Placement:
    """Return where the ranks train on this machine with run.device = `choice`. KnobError like `place`."""
    if choice == "cpu":
        return place(choice, ranks, 0, nccl=False)  # before any accelerator is queried, which may be broken
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return place(choice, ranks, gpus, nccl=devices.nccl())


def open_device(device: str) -> None:
    """Reserve a GPU for this process, before anything else may choose one. KnobError if it cannot be used."""
    if not _on_gpu(device):
        return
    try:
        torch.cuda.set_device(device)
        torch.zeros(1, device=device)
        _finish(device)
    except Exception as fault:
        raise KnobError(f"{device} cannot be used: {_in_one_line(fault)}; {_INSTEAD}") from None


def meet(store: Store, rank: int, world: int) -> None:
    """Create the group in which the ranks wait for each other, which is torch's default group."""
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=FOREVER)


def group_of_devices(backend: str, device: str) -> ProcessGroup | None:
    """Return the group for tensors on the devices, connected; None without a `backend`, as the default group does that
    too. KnobError if it does not start."""
    if not backend:
        return None
    try:
        group = dist.new_group(backend=backend, timeout=FOREVER)
        dist.all_reduce(torch.ones(1, device=device), group=group)  # NCCL connects in its first call
        _finish(device)
    except Exception as fault:  # of CUDA, NCCL or torch, each of which raises its own exceptions
        raise KnobError(not_started(device, _in_one_line(fault))) from None
    assert isinstance(group, ProcessGroup), "every rank is in it"
    return group


def not_started(device: str, why: str) -> str:
    """Return the message for a group of devices that does not start."""
    return f"NCCL, which takes gradients from GPU to GPU, does not start on {device}: {why}; {_INSTEAD}"


class Collectives:
    """The calls that all ranks make together, in the same order.

    There may be a second group for tensors on the devices, `group`. A call of NCCL returns before it has happened, and
    a rank that hangs would be indistinguishable from one that waits. So all ranks meet in the first group before each
    such call, where waiting is visible, and the host waits until the device has finished it. `waits` is called with
    True before each call, and with False after it. Each method returns the seconds from the end of this rank's own work
    to the end of the call."""

    def __init__(self, world: int, device: str, group: ProcessGroup | None, waits: Callable[[bool], None]) -> None:
        self.world, self.device, self.group, self._waits = world, device, group, waits

    def all_reduce(self, tensor: Tensor) -> float:
        """Sum a tensor over the ranks, in place."""
        return self._call(lambda: dist.all_reduce(tensor, group=self.group))

    def broadcast(self, tensor: Tensor) -> float:
        """Give every rank the tensor of rank 0, in place."""
        return self._call(lambda: dist.broadcast(tensor, 0, group=self.group))

    def meet(self) -> float:
        """Wait for all ranks."""
        return self._call(dist.barrier, meets=True)

    def _call(self, call: Callable[[], object], *, meets: bool = False) -> float:
        _finish(self.device)
        started = time.perf_counter()
        self._waits(True)
        if self.group is not None and not meets:
            dist.barrier()
        call()
        _finish(self.device)
        self._waits(False)
        return time.perf_counter() - started


def _finish(device: str) -> None:
    """Wait until a GPU has finished its work."""
    if _on_gpu(device):
        torch.cuda.synchronize(device)


def _on_gpu(device: str) -> bool:
    return device.startswith("cuda")


def _in_one_line(fault: Exception) -> str:
    """Return the message of an exception, in one line. NCCL puts the reason last, after lines on the location."""
    lines = [line.strip() for line in str(fault).splitlines() if line.strip()]
    return lines[-1].rstrip(".")[:200] if lines else type(fault).__name__

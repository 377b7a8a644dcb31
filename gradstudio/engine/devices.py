"""The devices that can train on this machine."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from gradstudio.core.knobs import KnobError


@dataclass(frozen=True, slots=True)
class Device:
    """A device that can train: `id` as in run.device, `name` as given by its manufacturer."""

    id: str
    name: str


def available() -> list[Device]:
    """Return every device that can train here, the CPU first."""
    devices = [Device("cpu", processor())]
    if torch.cuda.is_available():
        devices += [
            Device(f"cuda:{index}", torch.cuda.get_device_name(index)) for index in range(torch.cuda.device_count())
        ]
    if torch.backends.mps.is_available():
        devices.append(Device("mps", "Apple GPU"))
    return devices


def resolve(choice: str) -> str:
    """Return the id of the device for run.device; KnobError if it is not available."""
    if choice == "cpu":
        return choice  # before any accelerator is queried, which may be broken
    ids = [device.id for device in available()]
    if choice == "auto":
        return ids[1] if len(ids) > 1 else "cpu"
    wanted = "cuda:0" if choice == "cuda" else choice
    if wanted not in ids:
        hint = "" if len(ids) > 1 else " (no accelerator was found)"
        raise KnobError(f"run.device = {choice} is not allowed; allowed here: {', '.join(['auto', *ids])}{hint}")
    return wanted


def nccl() -> bool:
    """Return whether this build of torch has NCCL, which GPUs need to train together."""
    return torch.distributed.is_available() and torch.distributed.is_nccl_available()


def to_device(tensor: Tensor, device: str) -> Tensor:
    """Return a CPU tensor on a device."""
    # CUDA copies without blocking only from pinned memory, which torch keeps until it is copied.
    return tensor.pin_memory().to(device, non_blocking=True) if device.startswith("cuda") else tensor.to(device)


@cache
def processor() -> str:
    """Return the name of the CPU, as far as the system reports it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or "CPU"

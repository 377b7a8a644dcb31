"""What can train here."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from gradstudio.core.knobs import KnobError


@dataclass(frozen=True, slots=True)
class Device:
    """Something that can train: `id` as in run.device, `name` as on its box."""

    id: str
    name: str


def available() -> list[Device]:
    """Every device that can train here, the CPU first."""
    found = [Device("cpu", processor())]
    if torch.cuda.is_available():
        found += [Device(f"cuda:{index}", torch.cuda.get_device_name(index)) for index in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        found.append(Device("mps", "Apple GPU"))
    return found


def resolve(choice: str) -> str:
    """The id of the device that run.device asks for; KnobError where it is not there."""
    if choice == "cpu":
        return choice  # without a look at accelerators, one of which may be broken
    ids = [device.id for device in available()]
    if choice == "auto":
        return ids[1] if len(ids) > 1 else "cpu"
    wanted = "cuda:0" if choice == "cuda" else choice
    if wanted not in ids:
        hint = "" if len(ids) > 1 else " (no accelerator was found)"
        raise KnobError(f"run.device = {choice} is not allowed; allowed here: {', '.join(['auto', *ids])}{hint}")
    return wanted


def placed(tensor: Tensor, device: str) -> Tensor:
    """A tensor of the CPU on a device. CUDA copies only from pinned memory without the host waiting for what the device still has to do;
    torch gives that memory to no one else before it is copied."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.startswith("cuda") else tensor.to(device)


def processor() -> str:
    """The name of the CPU, as far as the system tells it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or "CPU"

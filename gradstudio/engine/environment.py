"""The environment of a run: versions and machine, for repeating it."""

from __future__ import annotations

import platform
from functools import cache
from importlib import metadata

import numpy
import torch

import gradstudio
from gradstudio.core import jit
from gradstudio.engine import devices


def describe(device: str, deterministic: bool) -> dict[str, str]:
    """Return the facts that a repetition needs, each as text."""
    names = {each.id: each.name for each in devices.available()}
    facts = {
        "gradstudio": gradstudio.__version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),  # a class of torch's own, otherwise
        "numpy": numpy.__version__,
        "numba": _version("numba") if jit.available() else "not installed",
        "platform": platform.platform(),
        "processor": devices.processor(),
        "device": device,
        "device_name": names[device],
        "threads": str(torch.get_num_threads()),
        "deterministic": "true" if deterministic else "false",
    }
    if device.startswith("cuda"):
        facts["cuda"] = str(torch.version.cuda)
    return facts


@cache
def _version(package: str) -> str:
    return metadata.version(package)

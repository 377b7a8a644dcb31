"""Run a script with a tool that others have: python peers.py anomaly|debugger SCRIPT [ARGUMENT ...]."""

from __future__ import annotations

import runpy
import sys
from typing import Any

from torch import autograd, nn


def anomaly() -> None:
    """Turn PyTorch's anomaly mode on. Lightning's `Trainer(detect_anomaly=True)` does no more."""
    autograd.set_detect_anomaly(True)


def debugger() -> None:
    """Put Hugging Face's debugger on each model at its first call."""
    from transformers.debug_utils import DebugUnderflowOverflow  # pyright: ignore[reportMissingImports]

    call, seen, within = nn.Module.__call__, {}, [0]

    def called(module: nn.Module, *given: Any, **named: Any) -> Any:
        if not within[0] and id(module) not in seen:
            seen[id(module)] = DebugUnderflowOverflow(module)
        within[0] += 1
        try:
            return call(module, *given, **named)
        finally:
            within[0] -= 1

    nn.Module.__call__ = called


if __name__ == "__main__":
    {"anomaly": anomaly, "debugger": debugger}[sys.argv[1]]()
    sys.argv = sys.argv[2:]
    runpy.run_path(sys.argv[0], run_name="__main__")

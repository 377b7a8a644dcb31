"""Run scripts with a tool that others have, each in a child that begins with the tool imported:

    python peers.py anomaly|debugger SCRIPT ...

A line of JSON for each: the script, and all that it printed. Beside gradstudio nothing is imported from here."""

from __future__ import annotations

import json
import os
import runpy
import sys
import tempfile
import traceback
from typing import Any

import torch
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


def _printed(script: str) -> str:
    """Run a script in a child, and return what it printed."""
    with tempfile.TemporaryFile("w+") as out:
        child = os.fork()
        if not child:
            os.dup2(out.fileno(), 1), os.dup2(out.fileno(), 2)
            sys.argv = [script]
            try:
                runpy.run_path(script, run_name="__main__")
            except BaseException:
                traceback.print_exc()
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(child, 0)
        out.seek(0)
        return out.read()


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.optim.Adam([nn.Parameter(torch.ones(1))])  # torch imports much of itself with the first optimizer
    {"anomaly": anomaly, "debugger": debugger}[sys.argv[1]]()
    for path in sys.argv[2:]:
        print(json.dumps([path, _printed(path)]), flush=True)

"""A list of operations as a program of torch's own, TorchScript, which runs without Python."""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from gradstudio.engine.torch_internals.internal import SLOWER, Internal, check

_TRIAL = "def program(tensors: List[Tensor]) -> None:\n    t0, t1, = tensors\n    torch.ops.aten.add_(t0, t1)\n"


def _runs(listed: Callable[[list[Tensor]], Any], script: Any) -> bool:
    place = torch.ones(2)
    with torch.jit.optimized_execution(False):
        script.program(listed([place, torch.full((2,), 4.0)]))
    return place.tolist() == [5, 5]


def _find_script() -> Callable[[str], Any]:
    check(_runs(list, torch.jit.CompilationUnit(_TRIAL)))
    return torch.jit.CompilationUnit


def _find_script_list() -> Callable[[list[Tensor]], Any]:
    check(_runs(torch._C.ScriptList, torch.jit.CompilationUnit(_TRIAL)))
    return torch._C.ScriptList


def _find_unoptimized() -> Callable[[], AbstractContextManager[None]]:
    before = torch.jit.optimized_execution
    with before(False):
        pass
    return lambda: before(False)


SCRIPT = Internal("torch.jit.CompilationUnit", "Recorded passes go through Python", SLOWER, _find_script)
UNOPTIMIZED = Internal("torch.jit.optimized_execution", "Recorded passes go through Python", SLOWER, _find_unoptimized)

SCRIPT_LIST = Internal(
    "torch._C.ScriptList", "Recorded passes hold Python's lock", "the window may react later", _find_script_list
)


def scripting_possible() -> bool:
    """Return whether torch can run a program without Python, and without optimizing it, which could change bits."""
    return UNOPTIMIZED.get() is not None and SCRIPT.get() is not None


@lru_cache(maxsize=32)  # compiling takes as long as some passes, and a branch or a twin asks for the same text again
def script(text: str) -> Any:
    """Compile TorchScript. Only where scripting_possible; RuntimeError where torch does not take the text."""
    # torch holds on to all that the calling function knows, so this one knows nothing else.
    return SCRIPT.get()(text)


def script_list(tensors: list[Tensor]) -> Any:
    """Return the tensors as an argument of a script, in a list that torch holds without Python where it can."""
    make = SCRIPT_LIST.get()
    return make(tensors) if make else tensors


def unoptimized() -> AbstractContextManager[None]:
    """Return a context in which this thread runs scripts as they are written."""
    make = UNOPTIMIZED.get()
    return make() if make else nullcontext()

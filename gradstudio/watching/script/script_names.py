"""The script's own names for its model and its optimizer: the names of variables, so that a text can use the script's
`net`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from types import FrameType
from typing import Any

from torch import nn

from gradstudio.watching.script import source_lines

MOST_FRAMES = 30  # number of the script's attributes searched


def name_of(wanted: object) -> str:
    """Return the name by which the currently running code of the script can reach an object, such as 'net' or
    'self.model'; "" if none was found. A module that contains the wanted one, and has no other parameters, counts as
    the same."""
    if wanted is None:
        return ""
    for names in _places():
        for name, value in names.items():
            if not name.startswith("_") and _is_the_same(value, wanted):
                return name
        owner = names.get("self")
        if owner is not None and not isinstance(owner, nn.Module):
            for name, value in getattr(owner, "__dict__", {}).items():
                if _is_the_same(value, wanted):
                    return f"self.{name}"
    return ""


def module_called(name: str) -> nn.Module | None:
    """Return the script's module with a name that `name_of` returned."""
    first, _, last = name.partition(".")
    for names in _places():
        value = names.get(first) if not last else getattr(names.get(first), last, None)
        if isinstance(value, nn.Module):
            return value
    return None


def variables() -> Iterator[tuple[str, Any]]:
    """Yield the variables that the currently running code of the script can reach, the innermost first."""
    for names in _places():
        yield from names.items()


def _places() -> Iterator[Mapping[str, Any]]:
    """Yield the variables of each running function of the script, the innermost first, then those of its file."""
    frame: FrameType | None = source_lines.calling_frame()
    for _ in range(MOST_FRAMES):
        if frame is None:
            break
        if source_lines.is_own(frame.f_code.co_filename):
            yield _variables(frame)
        frame = frame.f_back
    yield vars(sys.modules["__main__"])


def _variables(frame: FrameType) -> dict[str, Any]:
    code, given = frame.f_code, frame.f_locals
    reachable = dict(given)
    if code.co_flags & inspect.CO_OPTIMIZED and sys.version_info < (3, 13):
        # Python keeps the returned dict for as long as the function runs, and with it the tensors of this step
        for name in (*code.co_varnames, *code.co_cellvars, *code.co_freevars):
            given.pop(name, None)
    return reachable


def _is_the_same(value: object, wanted: object) -> bool:
    if value is wanted:
        return True
    if not isinstance(value, nn.Module) or not isinstance(wanted, nn.Module):
        return False
    # of a thousand modules most differ in the first one
    return all(one is other for one, other in zip_longest(value.parameters(), wanted.parameters()))

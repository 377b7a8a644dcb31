"""Lines of somebody's script: which of them is at work, and which of them call an operation."""

from __future__ import annotations

import ast
import contextlib
import inspect
import linecache
import os
import re
import sys
import sysconfig
from collections.abc import Iterable
from functools import lru_cache
from types import FrameType
from typing import Any, NamedTuple

import torch

import gradstudio

LONGEST = 100  # characters of a line that are shown
# Code that a person did not write for this training.
_LIBRARIES = tuple(
    os.path.join(os.path.abspath(folder), "")
    for folder in (
        os.path.dirname(torch.__file__), os.path.dirname(gradstudio.__file__),
        sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"],
    )
)  # fmt: skip
_ENTRY = re.compile(r'File "([^"]+)", line (\d+)')
_OF_NUMBERS = ("math", "cmath", "numpy", "random", "statistics")  # modules that compute nothing of torch's
_SIGNS: dict[type[ast.operator], str] = {ast.Div: "div", ast.Pow: "pow", ast.Sub: "sub", ast.Mult: "mul"}


class Place(NamedTuple):
    """A line of a file."""

    file: str
    line: int

    @property
    def text(self) -> str:
        """The place and its line of code, such as 'train.py:41: loss = -p.log().mean()'."""
        code = " ".join(linecache.getline(self.file, self.line).split())
        return f"{os.path.basename(self.file)}:{self.line}" + (f": {code[:LONGEST]}" if code else "")


def at_work(above: str) -> Place | None:
    """Return the innermost line at work that is no library's and was called from the file `above`, which asks."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename != above:
        if is_own(frame.f_code.co_filename):
            return Place(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return None


def of_node(node: Any, above: str) -> Place | None:
    """Return the line, called from the file `above`, that made a node of autograd's graph; torch must have noted it."""
    found: list[Place] = []
    for file, line in _ENTRY.findall("".join(node.metadata.get("traceback_", []))):
        found = [] if file == above else [*found, Place(file, int(line))]
    own = [place for place in found if is_own(place.file)]
    return own[-1] if own else None


def calling_frame() -> FrameType | None:
    """Return the frame of the script that calls torch or a library now."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_own(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def calls_of(operation: str, file: str, but: Iterable[tuple[int, int]] = ()) -> list[Place]:
    """Return the lines of a file that call an operation such as 'log', or write its sign; without those of the ranges
    `but`."""
    wanted = {operation, f"{operation}_", operation.replace("_", "") + "loss"}
    return [
        Place(file, line)
        for line, names in sorted(_calls(file).items())
        if wanted & names and not any(first <= line <= last for first, last in but)
    ]


def files_of_classes(classes: Iterable[type]) -> set[str]:
    """Return the files of a person's own code in which these classes are written."""
    found: set[str] = set()
    for each in classes:
        with contextlib.suppress(OSError, TypeError):
            file = inspect.getsourcefile(each)
            found |= {file} if file and is_own(file) else set()
    return found


def lines_of_classes(classes: Iterable[type], file: str) -> list[tuple[int, int]]:
    """Return the first and last line of each class that is written in a file."""
    found = []
    for each in classes:
        with contextlib.suppress(OSError, TypeError):  # a class without a file, as in an interpreter
            if inspect.getsourcefile(each) == file:
                text, first = inspect.getsourcelines(each)
                found.append((first, first + len(text) - 1))
    return found


@lru_cache(8)
def _calls(file: str) -> dict[int, set[str]]:
    """Return the names that are called in each line, in small letters, without what is called of plain numbers."""
    found: dict[int, set[str]] = {}
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return {}
    nodes = list(ast.walk(tree))
    of_numbers = {
        each.asname or each.name for node in nodes if isinstance(node, ast.Import) for each in node.names
        if each.name in _OF_NUMBERS
    }  # fmt: skip
    for node in nodes:
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=module))) if module in of_numbers:
                continue
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
                found.setdefault(node.lineno, set()).add(name.lower())
            case ast.BinOp(op=sign) | ast.AugAssign(op=sign) if type(sign) in _SIGNS:
                found.setdefault(node.lineno, set()).add(_SIGNS[type(sign)])
    return found


@lru_cache(256)
def is_own(file: str) -> bool:
    return not file.startswith("<") and not os.path.abspath(file).startswith(_LIBRARIES)

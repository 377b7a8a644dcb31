"""Lines of a user's script: which of them is running, and which of them call an operation."""

from __future__ import annotations

import ast
import contextlib
import inspect
import linecache
import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from functools import lru_cache
from types import FrameType
from typing import Any, NamedTuple

import torch

import gradstudio

LONGEST = 100  # characters of a line that are shown
FILES = 1000  # of a script that are remembered, as each search asks for the same ones
# Code that the user did not write for this training.
_LIBRARIES = tuple(
    os.path.join(os.path.abspath(folder), "")
    for folder in (
        os.path.dirname(torch.__file__), os.path.dirname(gradstudio.__file__),
        sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"],
    )
)  # fmt: skip
_ENTRY = re.compile(r'File "([^"]+)", line (\d+)')
_OF_NUMBERS = ("math", "cmath", "numpy", "random", "statistics")  # modules that compute nothing with torch
_SIGNS: dict[type[ast.operator], str] = {
    ast.Div: "div", ast.Pow: "pow", ast.Sub: "sub", ast.Mult: "mul", ast.Add: "add", ast.MatMult: "matmul",
}  # fmt: skip
_OF_LABELS = frozenset(("nll_loss", "nllloss", "cross_entropy", "crossentropyloss"))
# Other spellings that a script may use for an operation of autograd's graph, in lower case.
_WRITTEN = {
    "rsub": {"sub"}, "pow": {"square"}, "mm": {"matmul"}, "bmm": {"matmul"}, "mv": {"matmul"},
    "linalg_vector_norm": {"norm", "vector_norm", "normalize"},
    **dict.fromkeys(("nll_loss", "nll_loss2d", "log_softmax"), _OF_LABELS),
    "binary_cross_entropy_with_logits": {"bcewithlogitsloss"}, "binary_cross_entropy": {"bceloss"},
}  # fmt: skip


class Place(NamedTuple):
    """A line of a file."""

    file: str
    line: int

    @property
    def text(self) -> str:
        """The place and its line of code, such as 'train.py:41: loss = -p.log().mean()'."""
        code = " ".join(linecache.getline(self.file, self.line).split())
        return f"{os.path.basename(self.file)}:{self.line}" + (f": {code[:LONGEST]}" if code else "")


class Site(NamedTuple):
    """A call of an operation, or its operator, in a file. `function` is the first line of the enclosing function."""

    place: Place
    name: str
    function: int
    call: ast.AST


def running_line(above: str) -> Place | None:
    """Return the innermost running line that does not belong to a library and was called from the file `above`, the
    caller."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename != above:
        if is_own(frame.f_code.co_filename):
            return Place(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return None


def of_node(node: Any, above: str) -> Place | None:
    """Return the line, called from the file `above`, that created a node of autograd's graph; torch must have recorded
    it."""
    places: list[Place] = []
    for file, line in _ENTRY.findall("".join(node.metadata.get("traceback_", []))):
        places = [] if file == above else [*places, Place(file, int(line))]
    own = [place for place in places if is_own(place.file)]
    return own[-1] if own else None


def calling_frame() -> FrameType | None:
    """Return the frame of the script that is calling torch or a library."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_own(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def frame_at(place: Place) -> FrameType | None:
    """Return the frame of the running function at this line; None if it has ended."""
    frame = calling_frame()
    while frame is not None:
        if frame.f_code.co_filename == place.file and place.line in {line for *_, line in frame.f_code.co_lines()}:
            return frame
        frame = frame.f_back
    return None


def files_beside(file: str) -> list[str]:
    """Return a file and the other loaded files of the user's own code in its folder."""
    loaded = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    folder = _folder(file)
    others = {each for each in loaded if each and each != file and _folder(each) == folder}
    return [file, *sorted(each for each in others if is_own(each))]


@lru_cache(10 * FILES)
def _folder(file: str) -> str:
    return os.path.dirname(os.path.abspath(file))


def calls_of(operation: str, file: str, but: Iterable[tuple[int, int]] = ()) -> list[Site]:
    """Return where a file calls an operation such as 'log', or uses its operator; without the lines of the ranges
    `but`."""
    plain = operation.replace("_", "").removesuffix("loss")
    wanted = {operation, f"{operation}_", f"{plain}loss", *_WRITTEN.get(operation, ())}
    return [
        site
        for site in _calls(file)
        if site.name in wanted and not any(first <= site.place.line <= last for first, last in but)
    ]


def latest_assignment(name: str, file: str, line: int) -> ast.expr | None:
    """Return what a variable is assigned in the latest line up to this one; None if nothing is."""
    earlier = [each for each in _assignments(name, file) if each.lineno <= line]
    return max(earlier, key=lambda each: each.lineno).value if earlier else None


def assignments_of(name: str, file: str) -> list[int]:
    """Return the lines of a file that assign to a variable."""
    return [each.lineno for each in _assignments(name, file)]


@lru_cache(32)
def _assignments(name: str, file: str) -> list[ast.Assign]:
    try:
        nodes = list(ast.walk(ast.parse("".join(linecache.getlines(file)))))
    except (SyntaxError, ValueError, RecursionError):
        return []
    return [
        node
        for node in nodes
        if isinstance(node, ast.Assign)
        and any(isinstance(each, ast.Name) and each.id == name for target in node.targets for each in ast.walk(target))
    ]


def files_of_classes(classes: Iterable[type]) -> set[str]:
    """Return the files of the user's own code that define these classes."""
    files: set[str] = set()
    for each in classes:
        with contextlib.suppress(OSError, TypeError):
            file = inspect.getsourcefile(each)
            files |= {file} if file and is_own(file) else set()
    return files


def lines_of_classes(classes: Iterable[type], file: str) -> list[tuple[int, int]]:
    """Return the first and last line of each class that a file defines."""
    ranges = []
    for each in classes:
        with contextlib.suppress(OSError, TypeError):  # a class without a file, for example in an interpreter
            if inspect.getsourcefile(each) == file:
                text, first = inspect.getsourcelines(each)
                ranges.append((first, first + len(text) - 1))
    return ranges


@lru_cache(FILES)
def _calls(file: str) -> list[Site]:
    """Return the calls in a file, line by line, in lower case, without those on plain numbers. A loss created from a
    class is listed by its variable."""
    try:
        nodes = list(_with_functions(ast.parse("".join(linecache.getlines(file))), 0))
    except (SyntaxError, ValueError, RecursionError):
        return []
    of_numbers = {
        each.asname or each.name for node, _ in nodes if isinstance(node, ast.Import) for each in node.names
        if each.name in _OF_NUMBERS
    }  # fmt: skip
    losses = dict(filter(None, (_loss_of_class(node) for node, _ in nodes)))
    sites: list[Site] = []
    for node, function in nodes:
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=module))) if module in of_numbers:
                continue
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
                name = losses.get(name, name).lower()
            case ast.BinOp(op=sign) | ast.AugAssign(op=sign) if type(sign) in _SIGNS:
                name = _SIGNS[type(sign)]
            case _:
                continue
        sites.append(Site(Place(file, node.lineno), name, function, node))
    made = set(losses.values())
    return [site for site in sites if not (made and isinstance(site.call, ast.Call) and _loss_class(site.call) in made)]


def _with_functions(node: ast.AST, function: int) -> Iterator[tuple[Any, int]]:
    """Yield the nodes of a tree in the order of evaluation, with the first line of their function."""
    inner = node.lineno if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) else function
    for child in ast.iter_child_nodes(node):
        yield from _with_functions(child, inner)
    yield node, function


def _loss_class(call: ast.Call) -> str:
    """Return the name of the class of a loss that is created here; "" if there is none."""
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    return name if name.endswith("Loss") else ""


def _loss_of_class(node: ast.AST) -> tuple[str, str] | None:
    match node:
        case ast.Assign(targets=[ast.Name(id=name) | ast.Attribute(attr=name)], value=ast.Call() as call):
            return (name, _loss_class(call)) if _loss_class(call) else None
    return None


@lru_cache(256)
def is_own(file: str) -> bool:
    return not file.startswith("<") and not os.path.abspath(file).startswith(_LIBRARIES)

"""The lines of a script that compute the operations of its loss code, and the values of their variables."""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gradstudio.core.provenance import operation_of
from gradstudio.engine.operation_watcher import values_of
from gradstudio.watching.script import source_lines
from gradstudio.watching.script.model_layers import ModelLike
from gradstudio.watching.script.script_names import variables
from gradstudio.watching.script.source_lines import Site

BEGAN = "the backward pass began at"  # a source if no line of the operation is known


def begins_at() -> str:
    """Return the source of a backward pass that begins now."""
    frame = source_lines.calling_frame()
    return "" if frame is None else f"{BEGAN} {source_lines.Place(frame.f_code.co_filename, frame.f_lineno).text}"


def line_of(operations: Sequence[str], model: ModelLike) -> str:
    """Return the line of the script that calls one of the operations; "" if there is not exactly one."""
    places = {site.place for each in operations for site in sites_of(each, model)}
    return places.pop().text if len(places) == 1 else ""


def line_in_model(operation: str, model: ModelLike) -> str:
    """Return the line of the model's code that calls an operation; "" if there is not exactly one."""
    classes = {type(module) for module in model.modules()}
    places = {
        site.place
        for file in source_lines.files_of_classes(classes)
        for site in source_lines.calls_of(operation, file)
        if any(first <= site.place.line <= last for first, last in source_lines.lines_of_classes(classes, file))
    }
    return places.pop().text if len(places) == 1 else ""


def sites_of(operation: str, model: ModelLike) -> list[Site]:
    """Return where the script calls an operation outside of the model's code. Lines after the current one in the same
    function were not called yet."""
    frame = source_lines.calling_frame()
    file = frame.f_code.co_filename if frame is not None else getattr(sys.modules["__main__"], "__file__", None)
    if not file:
        return []
    sites: list[Site] = []
    for each in source_lines.files_beside(file):
        ranges = source_lines.lines_of_classes({type(module) for module in model.modules()}, each)
        sites += source_lines.calls_of(operation, each, ranges)
    if frame is None:
        return sites
    own = {line for *_, line in frame.f_code.co_lines()}
    return [
        site
        for site in sites
        if site.place.file != file or site.place.line <= frame.f_lineno or site.place.line not in own
    ]


class LossLines:
    """The lines of nodes of autograd's graph, which are given in the order in which they were computed."""

    def __init__(self, nodes: Sequence[Any], model: ModelLike) -> None:
        self._nodes, self._model = nodes, model
        self._sites: dict[str, list[Site]] = {}

    def site_of(self, node: Any) -> Site | None:
        """Return the place that computed a node: the only candidate, or one of as many candidates as there are such
        nodes."""
        operation = operation_of(node.name())
        if (sites := self._sites.get(operation)) is None:
            sites = self._sites[operation] = sites_of(operation, self._model)
        if operation in ("sub", "rsub"):  # of a line with both, such as `1 - x, x - 1`
            is_reversed = operation == "rsub"
            sites = [each for each in sites if _begins_with_a_number(each) is is_reversed] or sites
        if len({site.place for site in sites}) == 1:
            return sites[0]
        alike = [each for each in self._nodes if operation_of(each.name()) == operation]
        is_one_each = len({site.function for site in sites}) == 1 and len(alike) == len(sites)
        return sites[alike.index(node)] if is_one_each and node in alike else None


def _begins_with_a_number(site: Site) -> bool:
    return isinstance(site.call, ast.BinOp) and isinstance(site.call.left, ast.Constant)


def operand(site: Site, place: int) -> Tensor | None:
    """Return the number or tensor at this position of an operation in the script, if it can be read without executing
    anything; otherwise None."""
    match site.call:
        case ast.BinOp(left=left, right=right):
            written = [left, right]
        case ast.Call(func=ast.Attribute(value=value), args=args):
            written = args if isinstance(value, ast.Name) and value.id in ("torch", "F") else [value, *args]
        case _:
            return None
    frame = source_lines.frame_at(site.place)
    constant = (
        _read(written[place], {**frame.f_globals, **frame.f_locals} if frame else {}) if place < len(written) else None
    )
    if isinstance(constant, (int, float)):
        return torch.tensor(float(constant))
    return constant.detach() if isinstance(constant, Tensor) else None


def _read(written: ast.expr, names: dict[str, Any]) -> Any:
    match written:
        case ast.Constant(value=value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.Name(id=name):
            return names.get(name)
        case ast.Attribute(value=ast.Name(id=name), attr=attribute):
            return getattr(names.get(name), "__dict__", {}).get(attribute)
    return None


def line_of_variable(name: str) -> str:
    """Return the latest line above the current one, in its function, that assigns a variable; "" if there is none."""
    frame = source_lines.calling_frame()
    if frame is None or not name:
        return ""
    own = {line for *_, line in frame.f_code.co_lines()}
    lines = [line for line in source_lines.assignments_of(name, frame.f_code.co_filename) if line in own]
    line = max((line for line in lines if line <= frame.f_lineno), default=0)
    return source_lines.Place(frame.f_code.co_filename, line).text if line else ""


def name_of_broken(tensor: Tensor | None) -> str:
    """Return the script's name for a non-finite tensor without a gradient or, if that is unknown, for the only such
    tensor among the accessible variables; "" if there is not exactly one."""
    names: dict[str, None] = {}
    for name, value in variables():
        if type(value) is Tensor and value.grad_fn is None and value.is_floating_point() and not name.startswith("_"):
            same = tensor is None or (value.data_ptr() == tensor.data_ptr() and value.shape == tensor.shape)
            if same and not values_of(value).finite:
                names[name] = None
    return next(iter(names)) if len(names) == 1 or (names and tensor is not None) else ""

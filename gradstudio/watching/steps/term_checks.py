"""Terms of a loss that train nothing because they have no gradient, and weights that are divided by: both are compared
now and then, the former by the names in the line that computes the loss."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from torch import Tensor, nn

from gradstudio.core.provenance import operation_of
from gradstudio.core.text import plural
from gradstudio.watching.births.loss_graph import MOST_NODES
from gradstudio.watching.births.loss_values import weight_behind
from gradstudio.watching.hooks.leaves import leaves_before, nodes_before
from gradstudio.watching.measuring.sharded_parameters import local_part
from gradstudio.watching.script import source_lines
from gradstudio.watching.script.model_layers import ModelLike
from gradstudio.watching.script.script_names import variables

_DERIVATIVE = "`create_graph=True` in the `torch.autograd.grad(...)` that it is computed from"
_CUT = (
    "`{}` from the outputs as they are: no `.item()`, `.detach()` or `torch.no_grad()` on its way, and no `argmax`, "
    "`>` or `.long()`, which have no gradient"
)


class TermChecks:
    """Checks the loss of one observer. `tell` is called with the rule, the evidence, the first step and the names."""

    def __init__(self, tell: Callable[..., None]) -> None:
        self._tell = tell
        self._before: dict[str, float] = {}  # values of terms without a gradient, at the look before
        self._is_over = False

    def look(self, roots: Sequence[Tensor], step: int) -> None:
        """Check the loss of a backward pass that begins."""
        if self._is_over or len(roots) != 1:
            return
        now = {name: float(value.detach()) for name, value in _constants(roots[0])}
        changed = [name for name, value in now.items() if name in self._before and value != self._before[name]]
        self._before = now
        if changed:
            self._is_over, name = True, changed[0]
            text = f"`{name}` is a term of the loss that differs from step to step, and leads to no parameter."
            self._tell("constant_term", text, step, known=_DERIVATIVE if _derives() else _CUT.format(name))


def _constants(root: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield the numbers without a gradient that are added up in a loss, by the names in the script."""
    names: dict[str, Any] = {}
    for name, value in variables():
        names.setdefault(name, value)
    called = next((name for name, value in names.items() if value is root), "")
    frame = source_lines.calling_frame()
    if not called or frame is None:
        return
    assigned = source_lines.latest_assignment(called, frame.f_code.co_filename, frame.f_lineno)
    for part in _summands(assigned):
        value = names.get(part.id) if isinstance(part, ast.Name) else None
        if isinstance(value, Tensor) and value.numel() == 1 and value.is_floating_point() and not _leads_to_any(value):
            yield part.id, value


def _leads_to_any(value: Tensor) -> bool:
    """Return whether a backward pass from a number reaches a parameter."""
    return any(isinstance(leaf, nn.Parameter) for leaf in leaves_before([value]))


def _summands(written: ast.expr | None) -> Iterator[Any]:
    """Yield what an expression adds up, without factors that are numbers."""
    match written:
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
            yield from _summands(left)
            yield from _summands(right)
        case (
            ast.BinOp(left=ast.Constant(), op=ast.Mult(), right=inner)
            | ast.BinOp(left=inner, op=ast.Mult() | ast.Div(), right=ast.Constant())
        ):
            yield from _summands(inner)
        case ast.Name() as name:
            yield name


def _derives() -> bool:
    """Return whether the file that is running calls `torch.autograd.grad`."""
    frame = source_lines.calling_frame()
    sites = source_lines.calls_of("grad", frame.f_code.co_filename) if frame is not None else []
    return any("autograd" in ast.unparse(site.call) for site in sites)


class DivisorChecks:
    """Checks whether a weight that a model or its loss divides by passes 0. `tell` is called with the rule, the
    evidence, the first step and the names."""

    def __init__(self, tell: Callable[..., None]) -> None:
        self._tell = tell
        self._signs: dict[int, Tensor] = {}  # of the entries of such weights, at the first look
        self._is_over = False

    def look(self, roots: Sequence[Tensor], model: ModelLike, step: int) -> None:
        """Check the divisors behind the loss of a backward pass that begins."""
        if self._is_over:
            return
        nodes = islice(nodes_before((root.grad_fn for root in roots), nearest_first=True), MOST_NODES)
        for node in (node for node in nodes if operation_of(node.name()) == "div" and len(node.next_functions) == 2):
            weight = weight_behind(node.next_functions[1][0])
            if weight is None:
                continue
            now = local_part(weight.detach()).sign()
            before = self._signs.setdefault(id(weight), now)
            if self._is_over or not bool((now != before).any()):
                continue
            self._is_over = True
            name = next((name for name, each in model.named_parameters() if each is weight), "a weight")
            text = (
                f"{int((now != before).sum()):,} of {plural(weight.numel(), 'entry', 'entries')} of {name} changed "
                f"sign since the first look, and the model divides by it."
            )
            self._tell("divisor_passes_0", text, step, known=name.rpartition(".")[2], layers=(name,))

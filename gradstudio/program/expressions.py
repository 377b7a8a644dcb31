"""The expressions of the reference as a program has them. A knob that stays is a literal; one that changes stays
`knobs.x`. A neutral element (+ 0, * 1) goes, and so does an argument that has torch's own default."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from gradstudio.program.parsed_source import NO_VALUES, Source, flat, needs_parens
from gradstudio.program.plan import Plan, WrittenNumber

UNKNOWN = object()
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "SGD": {"momentum": 0.0, "weight_decay": 0.0},
    "Adam": {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0},
    "AdamW": {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01},
    "RMSprop": {"momentum": 0.0, "eps": 1e-8, "weight_decay": 0.0},
    "GradScaler": {
        "init_scale": 65536.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000, "enabled": True,
    },
    "BatchNorm1d": {"momentum": 0.1},
    "BatchNorm2d": {"momentum": 0.1},
    "autocast": {"enabled": True},
    "zero_grad": {"set_to_none": True},
    "scaled_dot_product_attention": {"is_causal": False},
}  # fmt: skip
_NEUTRAL = {ast.Add: (0, "lr"), ast.Sub: (0, "r"), ast.Mult: (1, "lr"), ast.Div: (1, "r")}
_SAFE = {"max": max, "min": min, "len": len}


class Expressions:
    """The expressions of a source as the program of one plan has them."""

    def __init__(self, of: Source, plan: Plan) -> None:
        self._source = of
        self.given: dict[str, str] = {}  # arguments of the function that is written where it is called
        self._worlds: list[dict[str, Any]] = []
        for state in plan.states:
            world: dict[str, Any] = {"knobs": state, "plan": plan, "__builtins__": _SAFE}
            exec(of.functions, world)
            self._worlds.append(world)

    def value(self, node: ast.expr) -> Any:
        """Return what an expression gives at every step; UNKNOWN where it differs, or depends on anything else."""
        known = self._source.names(node) & ({"knobs", "plan", *self.given} | self._source.inline.keys())
        if not known or isinstance(node, NO_VALUES) or (isinstance(node, ast.Tuple) and _has_slices(node)):
            return UNKNOWN
        code, found = _compiled(self._raw(node)), UNKNOWN
        for world in self._worlds:
            try:
                value = eval(code, world)
            except (NameError, TypeError):
                return UNKNOWN
            if found is not UNKNOWN and (repr(found) != repr(value)):
                return UNKNOWN
            found = value
        return found

    def holds(self, test: ast.expr) -> bool | None:
        """Return whether a condition holds at every step, or at none; None where that is not known."""
        if not self._source.names(test) & ({"knobs", "plan", *self.given} | self._source.inline.keys()):
            return {"TYPE_CHECKING": False}.get(self._source.of(test))
        code, found = _compiled(self._raw(test)), set[bool]()
        for world in self._worlds:
            try:
                found.add(bool(eval(code, world)))
            except (NameError, TypeError):
                found |= {True, False}
        if len(found) == 1:
            return found.pop()
        if isinstance(test, ast.BoolOp):
            parts, stop = [self.holds(part) for part in test.values], isinstance(test.op, ast.Or)
            if stop in parts:
                return stop
        return None

    def _raw(self, node: ast.AST) -> str:
        """Return the source of an expression, with the arguments of an inlined function in it."""
        text, (start, _) = self._source.of(node), self._source.span(node)
        if not self._source.names(node) & self.given.keys():
            return f"({text})"
        places = [each for each in ast.walk(node) if isinstance(each, ast.Name) and each.id in self.given]
        for place in sorted(places, key=lambda each: self._source.span(each), reverse=True):
            first, last = self._source.span(place)
            text = f"{text[: first - start]}({self.given[place.id]}){text[last - start :]}"
        return f"({text})"

    def arguments(self, call: ast.Call) -> dict[str, str]:
        function = self._source.inline[name_of(call.func)]
        names = [each.arg for each in function.args.args]
        return dict(zip(names, [self.text(each) for each in call.args], strict=True))

    def text(self, node: ast.expr) -> str:
        """Return an expression as the program has it."""
        value = self.value(node)
        if value is not UNKNOWN and (text := _folded(value, node)) is not None:
            return text
        match node:
            case ast.Name(id=name) if name in self.given:
                return self.given[name]
            case ast.IfExp(test=test, body=body, orelse=orelse) if (holds := self.holds(test)) is not None:
                return self.text(body if holds else orelse)
            case ast.IfExp(body=body, orelse=orelse) if (text := self.text(body)) == self.text(orelse):
                return text
            case ast.BoolOp(op=op, values=values):
                return self._bool(node, op, values)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _NEUTRAL:
                neutral, sides = _NEUTRAL[type(op)]
                for side, one, other in (("r", right, left), ("l", left, right)):
                    if side in sides and _equals(self.value(one), neutral):
                        return self.text(other)
            case ast.Call():
                return self._call(node)
            case ast.Slice(lower=ast.expr()):
                return re.sub(r"^(-?\d+) :$", r"\1:", self.part(node))
        return self.part(node)

    def _bool(self, node: ast.BoolOp, op: ast.boolop, values: Sequence[ast.expr]) -> str:
        """Return a condition without the parts that are known to hold, or not to."""
        neutral = isinstance(op, ast.And)
        kept = [each for each in values if self.holds(each) is not neutral]
        if len(kept) == 1:
            return self.text(kept[0])
        parts = [(self.text(each), each) for each in kept]
        return (" and " if neutral else " or ").join(
            f"({text})" if needs_parens(text, each, node) else text for text, each in parts
        )

    def _call(self, node: ast.Call) -> str:
        name = name_of(node.func)
        if name in self._source.inline and isinstance(node.func, ast.Name):
            function = self._source.inline[name]
            before, self.given = self.given, self.arguments(node)
            found = self._returned(without_docstring(function))
            if found is None:
                raise TypeError(f"{name} is no expression")
            text = flat(self.text(found))
            self.given = before
            return text
        defaults, dropped = DEFAULTS.get(name, {}), False
        parts: list[str] = []
        for each in node.args:
            parts.append(self.text(each))
        for each in node.keywords:
            value = self.value(each.value)
            if each.arg is None and value is not UNKNOWN:
                dropped = True
                parts += [f"{key}={literal(one)}" for key, one in value.items()]
            elif each.arg in defaults and value is not UNKNOWN and value == defaults.get(each.arg or ""):
                dropped = True
            else:
                parts.append(f"{each.arg}={self.text(each.value)}")
        return f"{self.text(node.func)}({', '.join(parts)})" if dropped else self.part(node)

    def _returned(self, body: Sequence[ast.stmt]) -> ast.expr | None:
        """Return the expression that a function gives, where only one can be."""
        for statement in body:
            if isinstance(statement, ast.Return):
                return statement.value
            if not isinstance(statement, ast.If) or (holds := self.holds(statement.test)) is None:
                return None
            found = self._returned(statement.body if holds else statement.orelse)
            if found is not None:
                return found
        return None

    def part(self, node: ast.AST) -> str:
        """Return the source of a node, with each part as the program has it."""
        if isinstance(node, ast.JoinedStr):
            return self._source.of(node)
        whole, (start, end) = self._source.text, self._source.span(node)
        text, at = "", start
        for child in sorted(self._children(node), key=lambda each: self._source.span(each)):
            first, last = self._source.span(child)
            items = self.value(child.value) if isinstance(child, ast.Starred) else UNKNOWN
            if isinstance(items, list) and len(items) <= 1:
                text, at = text + (whole[at:first] + repr(items[0]) if items else whole[at:first].rstrip(" ,")), last
                continue
            new = self.text(child) if isinstance(child, ast.expr) else self.part(child)
            if isinstance(child, ast.expr) and new != self._source.of(child):
                first, last = self._outside(first, last, start)
                new = (
                    f"({new})"
                    if needs_parens(new, child, node)
                    else new
                    if first == self._source.span(child)[0]
                    else flat(new)
                )
            text, at = text + whole[at:first] + new, last
        return text + whole[at:end]

    def _children(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the parts of a node that have a place in the source."""
        for child in ast.iter_child_nodes(node):
            if hasattr(child, "lineno"):
                yield child
            else:
                yield from self._children(child)

    def _outside(self, first: int, last: int, least: int) -> tuple[int, int]:
        """Return the place of an expression with the parentheses around it alone."""
        whole = self._source.text
        while True:
            before, after = len(whole[:first].rstrip()) - 1, last + len(whole[last:]) - len(whole[last:].lstrip())
            if before < least or whole[before] != "(" or whole[after] != ")" or re.match(r"[\w\])]", whole[before - 1]):
                return first, last
            first, last = before, after + 1


def _folded(value: Any, node: ast.AST) -> str | None:
    """Return a value as Python writes it; None where the expression says more."""
    if isinstance(node, ast.BinOp) or not (value is None or isinstance(value, (bool, int, float, str))):
        return None
    return literal(value)


def literal(value: Any) -> str:
    """Return a value as Python writes it, with texts in double quotes."""
    if isinstance(value, WrittenNumber):
        return value.text
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _has_slices(node: ast.Tuple) -> bool:
    return any(isinstance(each, ast.Slice) for each in node.elts)


def _equals(value: Any, number: int) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == number


def name_of(function: ast.expr) -> str:
    return getattr(function, "id", "") or getattr(function, "attr", "")


@cache
def _compiled(text: str) -> Any:
    return compile(text, "reference", "eval")


def without_docstring(function: ast.FunctionDef) -> list[ast.stmt]:
    return function.body[1:] if ast.get_docstring(function) is not None else function.body

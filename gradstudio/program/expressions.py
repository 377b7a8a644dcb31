"""The expressions of the reference as they appear in a program. A constant knob becomes a literal; one that changes
stays `knobs.x`. A neutral element (+ 0, * 1) is removed, and so is an argument with torch's own default."""

from __future__ import annotations

import ast
import json
import operator
import re
from collections.abc import Mapping, Sequence
from typing import Any

from gradstudio.program.parsed_source import Source
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
_NEUTRAL = {ast.Add: (0, "lr"), ast.Sub: (0, "r"), ast.Mult: (1, "lr"), ast.Div: (1, "r"), ast.FloorDiv: (1, "r")}
_SAFE = {"max": max, "min": min, "len": len}


class Expressions:
    """The expressions of a source, specialised for one plan."""

    def __init__(self, of: Source, plan: Plan) -> None:
        self._source = of
        self._given: dict[str, ast.expr] = {}  # arguments of the function that is inlined
        self._known = {"knobs", "plan", "TYPE_CHECKING", *of.inline}
        self._worlds: list[dict[str, Any]] = []
        for state in plan.states:
            world = {"knobs": state, "plan": plan, "TYPE_CHECKING": False, "__builtins__": _SAFE}
            exec(of.functions, world)
            self._worlds.append(world)
        self._arguments: list[dict[str, Any]] = [{} for _ in self._worlds]

    def _depends(self, node: ast.AST) -> bool:
        """Return whether a node may differ from what is written, or have a known value."""
        names = self._source.names(node)
        return not (names.isdisjoint(self._known) and names.isdisjoint(self._given))

    def _values(self, node: ast.expr) -> list[Any]:
        """Return the values of an expression in each state of the knobs; empty if it depends on anything else."""
        if not self._depends(node):
            return []
        try:
            code = self._source.code(node)
            return [eval(code, *places) for places in zip(self._worlds, self._arguments, strict=True)] if code else []
        except (NameError, TypeError):
            return []

    def value(self, node: ast.expr) -> Any:
        """Return the value of an expression if it is the same at every step; UNKNOWN if it differs, or depends on
        anything else."""
        values = self._values(node)
        return values[0] if len({repr(value) for value in values}) == 1 else UNKNOWN

    def holds(self, test: ast.expr) -> bool | None:
        """Return whether a condition holds at every step, or at none; None if unknown."""
        outcomes = {bool(value) for value in self._values(test)}
        if len(outcomes) == 1:
            return outcomes.pop()
        if isinstance(test, ast.BoolOp):
            stop = isinstance(test.op, ast.Or)
            if stop in [self.holds(part) for part in test.values]:
                return stop
        return None

    def enter(self, call: ast.Call) -> tuple[list[ast.stmt], Any]:
        """Return the body of an inlined function with its arguments known, and the state that `leave` needs."""
        function, before = self._source.inline[name_of(call.func)], (self._given, self._arguments)
        given = dict(zip((each.arg for each in function.args.args), call.args, strict=True))
        values = {name: self._values(argument) for name, argument in given.items()}
        arguments = [{name: each[at] for name, each in values.items() if each} for at in range(len(self._worlds))]
        self._given, self._arguments = {name: self.of(each) for name, each in given.items()}, arguments
        return function.body[ast.get_docstring(function) is not None :], before

    def leave(self, before: Any) -> None:
        self._given, self._arguments = before

    def text(self, node: ast.AST) -> str:
        """Return a node in one line, as in the program."""
        return re.sub(r"(?<=[\w.]) \*\* (?=[\w.])", "**", ast.unparse(self.of(node)))

    def of(self, node: Any) -> Any:
        """Return a node as it stands in the specialised program; the same object if nothing changes."""
        if not self._depends(node):
            return node
        if isinstance(node, ast.expr) and not isinstance(node, ast.BinOp):
            value = self.value(node)
            if value is None or isinstance(value, (bool, int, float, str)):
                return _parsed(value)
        match node:
            case ast.Name(id=name) if name in self._given:
                return self._given[name]
            case ast.IfExp(test=test, body=body, orelse=orelse):
                if (holds := self.holds(test)) is not None:
                    return self.of(body if holds else orelse)
                if self.text(body) == self.text(orelse):
                    return self.of(body)
            case ast.BoolOp(op=op, values=values):
                kept = [each for each in values if self.holds(each) is not isinstance(op, ast.And)]
                parts = [self.of(each) for each in kept]
                return parts[0] if len(parts) == 1 else self._same(node, {"op": op, "values": parts})
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _NEUTRAL:
                neutral, sides = _NEUTRAL[type(op)]
                for side, one, other in (("r", right, left), ("l", left, right)):
                    if side in sides and _equals(self.value(one), neutral):
                        return self.of(other)
            case ast.Call(func=ast.Name(id=name)) if name in self._source.inline:
                return self._inlined(node)
        return self._same(node, {name: self._part(node, name, value) for name, value in ast.iter_fields(node)})

    def _same(self, node: Any, fields: dict[str, Any]) -> Any:
        """Return a node with these fields: the node itself if they are unchanged."""
        for name, value in fields.items():
            old = getattr(node, name)
            are_same = isinstance(old, list) and len(old) == len(value) and all(map(operator.is_, old, value))
            if old is not value and not are_same:
                if isinstance(node, (ast.Return, ast.Yield)) and isinstance(node.value, ast.Tuple):
                    fields["value"] = ast.Name(", ".join(ast.unparse(each) for each in fields["value"].elts))
                return ast.copy_location(type(node)(**fields), node)
        return node

    def _part(self, node: ast.AST, name: str, value: Any) -> Any:
        if isinstance(node, ast.Call) and name == "keywords":
            return self._keywords(node)
        if isinstance(value, list):
            return [new for each in value for new in self._element(each)]
        return self.of(value) if isinstance(value, ast.AST) else value

    def _element(self, node: Any) -> list[Any]:
        """Return an element of a list; for a starred one with at most one element, that element."""
        items = self.value(node.value) if isinstance(node, ast.Starred) else UNKNOWN
        if isinstance(items, list) and len(items) <= 1:
            return [_parsed(each) for each in items]
        return [self.of(node) if isinstance(node, ast.AST) else node]

    def _keywords(self, call: ast.Call) -> list[ast.keyword]:
        defaults, kept = DEFAULTS.get(name_of(self.of(call.func)), {}), list[ast.keyword]()
        for each in call.keywords:
            value = self.value(each.value)
            if each.arg is None and value is not UNKNOWN:
                kept += [ast.keyword(key, _parsed(one)) for key, one in value.items()]
            elif value is UNKNOWN or defaults.get(each.arg or "", UNKNOWN) != value:
                kept.append(self.of(each))
        return kept

    def _inlined(self, call: ast.Call) -> ast.expr:
        body, before = self.enter(call)
        returned = self._returned(body)
        if returned is None:
            raise TypeError(f"{name_of(call.func)} is no expression")
        new = self.of(returned)
        self.leave(before)
        return new

    def _returned(self, body: Sequence[ast.stmt]) -> ast.expr | None:
        """Return the expression that a function returns, if there can be only one."""
        for statement in body:
            if isinstance(statement, ast.Return):
                return statement.value
            if not isinstance(statement, ast.If) or (holds := self.holds(statement.test)) is None:
                return None
            if (returned := self._returned(statement.body if holds else statement.orelse)) is not None:
                return returned
        return None


def literal(value: Any) -> str:
    """Return a value in Python syntax, with texts in double quotes."""
    if isinstance(value, WrittenNumber):
        return value.text
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _parsed(value: Any) -> ast.expr:
    text = literal(value)
    return ast.Name(text) if isinstance(value, str) else ast.parse(text, mode="eval").body


def _equals(value: Any, number: int) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == number


def name_of(function: ast.expr) -> str:
    return getattr(function, "id", "") or getattr(function, "attr", "")

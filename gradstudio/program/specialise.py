"""The specialiser: of the reference program it keeps the branches that an experiment takes, and all comments.

A condition that holds of the knobs at every step, or at none, is decided. A knob that stays is a literal; one that
changes stays `knobs.x`. A neutral element (+ 0, * 1) goes, and so does an argument that has torch's own default. A
function marked @inline stands where it is called."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from gradstudio.core.mistakes import MARK
from gradstudio.program.parsed_source import NO_VALUES, Source, flat, needs_parens
from gradstudio.program.plan import Plan, Written

WIDEST = 120  # columns
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


class Specialiser:
    """Writes the lines of a source for one plan."""

    def __init__(self, of: Source, plan: Plan) -> None:
        self._source, self._plan = of, plan
        self._given: dict[str, str] = {}  # arguments of the function that is written where it is called
        self._row = 0  # the last line of the source that was looked at
        self._worlds: list[dict[str, Any]] = []
        for state in plan.states:
            world: dict[str, Any] = {"knobs": state, "plan": plan, "__builtins__": _SAFE}
            exec(of.functions, world)
            self._worlds.append(world)

    def program(self) -> str:
        return "\n".join(self._block(self._source.tree.body, 0, 0))

    # ---- what is known

    def _value(self, node: ast.expr) -> Any:
        """Return what an expression gives at every step; UNKNOWN where it differs, or depends on anything else."""
        known = self._source.names(node) & ({"knobs", "plan", *self._given} | self._source.inline.keys())
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

    def _holds(self, test: ast.expr) -> bool | None:
        """Return whether a condition holds at every step, or at none; None where that is not known."""
        if not self._source.names(test) & ({"knobs", "plan", *self._given} | self._source.inline.keys()):
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
            parts, stop = [self._holds(part) for part in test.values], isinstance(test.op, ast.Or)
            if stop in parts:
                return stop
        return None

    def _raw(self, node: ast.AST) -> str:
        """Return the source of an expression, with the arguments of an inlined function in it."""
        text, (start, _) = self._source.of(node), self._source.span(node)
        if not self._source.names(node) & self._given.keys():
            return f"({text})"
        places = [each for each in ast.walk(node) if isinstance(each, ast.Name) and each.id in self._given]
        for place in sorted(places, key=lambda each: self._source.span(each), reverse=True):
            first, last = self._source.span(place)
            text = f"{text[: first - start]}({self._given[place.id]}){text[last - start :]}"
        return f"({text})"

    # ---- statements

    def _block(self, body: Sequence[ast.stmt], column: int, row: int) -> list[str]:
        """Return the lines of statements, indented by `column`; comments above them are looked for from `row` on."""
        lines: list[str] = []
        for statement in body:
            first = min([statement.lineno, *(each.lineno for each in getattr(statement, "decorator_list", []))]) - 1
            above = self._source.lines[row:first]
            written = self._statement(statement, column)
            lines += self._comments(above, column, whole=bool(written) or isinstance(statement, ast.Pass)) + written
            row = statement.end_lineno or 0
            if written and isinstance(statement, (ast.If, ast.Return)) and _ends(written, column):
                break
        return lines

    def _comments(self, above: Sequence[str], column: int, *, whole: bool) -> list[str]:
        """Return the comments and empty lines above a statement; only those on mistakes where it is not there."""
        lines = []
        for line in above:
            text = line.strip()
            if text.startswith("# ----"):
                continue
            mistake = re.match(rf"{MARK} (\w+): ", text)
            shown = self._is_ever_made(mistake[1], whole) if mistake else whole
            if shown:
                lines.append(" " * column + text if text else "")
        return lines

    def _is_ever_made(self, mistake: str, whole: bool) -> bool:
        name = f"mistakes_{mistake}"
        return self._plan.ever(lambda knobs: getattr(knobs, name, whole))

    def _statement(self, node: ast.stmt, column: int) -> list[str]:
        match node:
            case ast.Pass() | ast.Global() | ast.ImportFrom(module="__future__" | "typing"):
                return []
            case ast.ImportFrom(module=str(module)) if module.startswith("gradstudio."):
                return []
            case ast.Expr(value=ast.Constant()) if node.col_offset == 0:  # the docstring of a file
                return []
            case ast.If():
                return self._if(node, column)
            case ast.FunctionDef() if node in self._source.inline.values():
                return []
            case ast.For(target=ast.Name(id=number), iter=ast.Call(func=ast.Name(id="range"), args=[count])):
                once = self._block(node.body, column, node.lineno) if self._value(count) == 1 else []
                if once and not re.search(rf"\b{number}\b", "\n".join(once)):
                    return once
            case ast.With(items=[item]) if self._text(item.context_expr) == "nullcontext()":
                return self._block(node.body, column, node.lineno)
            case ast.With(items=[ast.withitem(context_expr=ast.Call(keywords=keywords))]) if any(
                each.arg == "enabled" and self._holds(each.value) is False for each in keywords
            ):
                return self._block(node.body, column, node.lineno)
            case ast.Expr(value=ast.Call(func=ast.Name(id=name)) as call) if name in self._source.inline:
                return self._inlined(call, column)
        if (body := getattr(node, "body", None)) is not None:
            return self._compound(node, body, column)
        return self._simple(node, column)

    def _if(self, node: ast.If, column: int) -> list[str]:
        holds, end = self._holds(node.test), self._source.header(node)
        if holds:
            return self._block(node.body, column, end)
        rest = self._else(node, column)
        if holds is False:
            return rest
        body, pad = self._block(node.body, column + 4, end), " " * column
        test = flat(self._text(node.test))
        if not body:
            inverted = re.sub(r'^("\w+") in ', r"\1 not in ", test)
            return [f"{pad}if {f'not {test}' if inverted == test else inverted}:", *_deeper(rest)] if rest else []
        lines = [f"{pad}if {test}:{self._comment(end)}", *body]
        if not rest:
            return lines
        below = node.orelse[0]
        while isinstance(below, ast.If) and self._holds(below.test) is False and below.orelse:
            below = below.orelse[0]
        if len(node.orelse) == 1 and isinstance(below, ast.If) and self._holds(below.test) is None:
            return [*lines, f"{pad}el{rest[0][column:]}", *rest[1:]]
        return [*lines, f"{pad}else:", *_deeper(rest)]

    def _else(self, node: ast.If, column: int) -> list[str]:
        if not node.orelse:
            return []
        first = node.orelse[0].lineno - 1
        while self._source.lines[first - 1].strip().startswith("#"):
            first -= 1
        return self._block(node.orelse, column, first)

    def _comment(self, row: int) -> str:
        """Return the comment at the end of a line."""
        comment = self._source.lines[row - 1].partition("  # ")[2]
        return f"  # {comment}" if comment and not comment.startswith("pyright") else ""

    def _compound(self, node: ast.stmt, body: Sequence[ast.stmt], column: int) -> list[str]:
        inside = self._block(body, column + 4, self._source.header(node))
        if not inside:
            return []
        pad, end = " " * column, self._source.header(node)
        decorators = [f"{pad}@{self._source.of(each)}" for each in getattr(node, "decorator_list", [])]
        return [*decorators, f"{pad}{flat(self._header(node))}:{self._comment(end)}", *inside]

    def _header(self, node: ast.stmt) -> str:
        """Return the first line of a loop, a context, a function or a class."""
        match node:
            case ast.FunctionDef(name=name, args=args):
                defaults = dict(zip([each.arg for each in args.args][::-1], args.defaults[::-1], strict=False))
                kept = [
                    each
                    for each in args.args
                    if each.arg not in defaults or self._holds(defaults[each.arg]) is not False
                ]
                text = f"def {name}({', '.join(each.arg for each in kept)})"
            case ast.ClassDef(name=name, bases=[base]):
                text = f"class {name}({self._text(base)})"
            case ast.For(target=target, iter=each):
                text = f"for {self._text(target)} in {self._text(each)}"
            case ast.While(test=test):
                text = f"while {self._text(test)}"
            case ast.With(items=[item]):
                given = f" as {self._text(item.optional_vars)}" if item.optional_vars else ""
                text = f"with {self._text(item.context_expr)}{given}"
            case _:
                raise TypeError(f"the reference has a {type(node).__name__}")
        return text

    def _simple(self, node: ast.stmt, column: int) -> list[str]:
        text = self._part(node)
        if isinstance(node, ast.Assign) and text == "{0} = {0}".format(self._text(node.targets[0])):
            return []
        pad, shift = " " * column, node.col_offset - column
        comment = self._source.lines[(node.end_lineno or 1) - 1][node.end_col_offset or 0 :].strip()
        comment = f"  {comment}" if comment and not comment.startswith("# pyright") else ""
        if text != self._source.of(node) and '"""' not in text and len(pad + flat(text) + comment) <= WIDEST:
            text = flat(text)
        first, *rest = text.split("\n")
        lines = [pad + first, *(line[shift:] if shift > 0 else " " * -shift + line for line in rest)]
        return [*lines[:-1], lines[-1] + comment]

    def _inlined(self, call: ast.Call, column: int) -> list[str]:
        """Return the statements of a function where it is called."""
        function = self._source.inline[_name(call.func)]
        before, self._given = self._given, self._arguments(call)
        body = _without_docstring(function)
        lines = self._block(body, column, body[0].lineno - 1)
        self._given = before
        return lines

    def _arguments(self, call: ast.Call) -> dict[str, str]:
        function = self._source.inline[_name(call.func)]
        names = [each.arg for each in function.args.args]
        return dict(zip(names, [self._text(each) for each in call.args], strict=True))

    # ---- expressions

    def _text(self, node: ast.expr) -> str:
        """Return an expression as the program has it."""
        value = self._value(node)
        if value is not UNKNOWN and (text := _folded(value, node)) is not None:
            return text
        match node:
            case ast.Name(id=name) if name in self._given:
                return self._given[name]
            case ast.IfExp(test=test, body=body, orelse=orelse) if (holds := self._holds(test)) is not None:
                return self._text(body if holds else orelse)
            case ast.IfExp(body=body, orelse=orelse) if (text := self._text(body)) == self._text(orelse):
                return text
            case ast.BoolOp(op=op, values=values):
                return self._bool(node, op, values)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _NEUTRAL:
                neutral, sides = _NEUTRAL[type(op)]
                for side, one, other in (("r", right, left), ("l", left, right)):
                    if side in sides and _equals(self._value(one), neutral):
                        return self._text(other)
            case ast.Call():
                return self._call(node)
            case ast.Slice(lower=ast.expr()):
                return re.sub(r"^(-?\d+) :$", r"\1:", self._part(node))
        return self._part(node)

    def _bool(self, node: ast.BoolOp, op: ast.boolop, values: Sequence[ast.expr]) -> str:
        """Return a condition without the parts that are known to hold, or not to."""
        neutral = isinstance(op, ast.And)
        kept = [each for each in values if self._holds(each) is not neutral]
        if len(kept) == 1:
            return self._text(kept[0])
        parts = [(self._text(each), each) for each in kept]
        return (" and " if neutral else " or ").join(
            f"({text})" if needs_parens(text, each, node) else text for text, each in parts
        )

    def _call(self, node: ast.Call) -> str:
        name = _name(node.func)
        if name in self._source.inline and isinstance(node.func, ast.Name):
            function = self._source.inline[name]
            before, self._given = self._given, self._arguments(node)
            found = self._returned(_without_docstring(function))
            if found is None:
                raise TypeError(f"{name} is no expression")
            text = flat(self._text(found))
            self._given = before
            return text
        defaults, dropped = DEFAULTS.get(name, {}), False
        parts: list[str] = []
        for each in node.args:
            parts.append(self._text(each))
        for each in node.keywords:
            value = self._value(each.value)
            if each.arg is None and value is not UNKNOWN:
                dropped = True
                parts += [f"{key}={literal(one)}" for key, one in value.items()]
            elif each.arg in defaults and value is not UNKNOWN and value == defaults.get(each.arg or ""):
                dropped = True
            else:
                parts.append(f"{each.arg}={self._text(each.value)}")
        return f"{self._text(node.func)}({', '.join(parts)})" if dropped else self._part(node)

    def _returned(self, body: Sequence[ast.stmt]) -> ast.expr | None:
        """Return the expression that a function gives, where only one can be."""
        for statement in body:
            if isinstance(statement, ast.Return):
                return statement.value
            if not isinstance(statement, ast.If) or (holds := self._holds(statement.test)) is None:
                return None
            found = self._returned(statement.body if holds else statement.orelse)
            if found is not None:
                return found
        return None

    def _part(self, node: ast.AST) -> str:
        """Return the source of a node, with each part as the program has it."""
        if isinstance(node, ast.JoinedStr):
            return self._source.of(node)
        whole, (start, end) = self._source.text, self._source.span(node)
        text, at = "", start
        for child in sorted(self._children(node), key=lambda each: self._source.span(each)):
            first, last = self._source.span(child)
            items = self._value(child.value) if isinstance(child, ast.Starred) else UNKNOWN
            if isinstance(items, list) and len(items) <= 1:
                text, at = text + (whole[at:first] + repr(items[0]) if items else whole[at:first].rstrip(" ,")), last
                continue
            new = self._text(child) if isinstance(child, ast.expr) else self._part(child)
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
    if isinstance(value, Written):
        return value.text
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _has_slices(node: ast.Tuple) -> bool:
    return any(isinstance(each, ast.Slice) for each in node.elts)


def _equals(value: Any, number: int) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == number


def _name(function: ast.expr) -> str:
    return getattr(function, "id", "") or getattr(function, "attr", "")


@cache
def _compiled(text: str) -> Any:
    return compile(text, "reference", "eval")


def _without_docstring(function: ast.FunctionDef) -> list[ast.stmt]:
    return function.body[1:] if ast.get_docstring(function) is not None else function.body


def _ends(lines: Sequence[str], column: int) -> bool:
    """Return whether nothing after these lines is reached."""
    last = next((line[column:] for line in reversed(lines) if line[column : column + 1] not in ("", " ", ")")), "")
    return last.partition(" ")[0] in ("return", "continue", "break")


def _deeper(lines: Sequence[str]) -> list[str]:
    return ["    " + line if line else "" for line in lines]

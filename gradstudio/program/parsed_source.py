"""A text with its syntax tree, and what must be known of Python to put one expression in the place of another."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

NO_VALUES = (ast.Yield, ast.YieldFrom, ast.Starred, ast.Slice)
_ATOMS = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant, ast.List, ast.Dict, ast.JoinedStr)
_BINDS = {ast.Add: 1, ast.Sub: 1, ast.Mult: 2, ast.Div: 2, ast.FloorDiv: 2, ast.Mod: 2, ast.Pow: 3}


class Source:
    """A text with its syntax tree, parsed once."""

    def __init__(self, text: str) -> None:
        self.text, self.tree = text, ast.parse(text)
        self.lines = text.split("\n")
        self._starts = [0]
        for line in self.lines:
            self._starts.append(self._starts[-1] + len(line) + 1)
        self.inline = {each.name: each for each in _functions(self.tree.body) if _is_inline(each)}
        bare = [_bare(function) for function in self.inline.values()]
        self.functions = compile("\n\n".join(map(ast.unparse, bare)), "reference", "exec")
        self._names: dict[ast.AST, frozenset[str]] = {}
        self._headers: dict[ast.AST, int] = {}

    def names(self, node: ast.AST) -> frozenset[str]:
        """Return every name in an expression."""
        if node not in self._names:
            self._names[node] = frozenset(each.id for each in ast.walk(node) if isinstance(each, ast.Name))
        return self._names[node]

    def header(self, node: ast.stmt) -> int:
        """Return the number of lines up to the end of a compound statement's header."""
        if node not in self._headers:
            self._headers[node] = _end_of_header(self.lines, node)
        return self._headers[node]

    def span(self, node: Any) -> tuple[int, int]:
        """Return where a node begins and ends in the text."""
        first, last = self._starts[node.lineno - 1], self._starts[node.end_lineno - 1]
        return first + node.col_offset, last + node.end_col_offset

    def of(self, node: ast.AST) -> str:
        start, end = self.span(node)
        return self.text[start:end]


def _functions(body: list[ast.stmt]) -> Iterator[ast.FunctionDef]:
    """Yield the functions of a program, also those that stand in an if."""
    for node in body:
        if isinstance(node, ast.FunctionDef):
            yield node
        elif isinstance(node, ast.If):
            yield from _functions([*node.body, *node.orelse])


def _is_inline(function: ast.FunctionDef) -> bool:
    return any(getattr(each, "id", "") == "inline" for each in function.decorator_list)


def _bare(function: ast.FunctionDef) -> ast.FunctionDef:
    return ast.FunctionDef(function.name, function.args, function.body, [], lineno=1, col_offset=0)


def _end_of_header(lines: list[str], node: Any) -> int:
    """Return the number of lines up to the end of a compound statement's header."""
    inside = [each for field, each in ast.iter_fields(node) if field not in ("body", "orelse", "decorator_list")]
    ends = [each.end_lineno for part in inside for each in _located(part)]
    row = max([node.lineno, *ends]) - 1
    while not re.search(r":\s*(#.*)?$", lines[row]):
        row += 1
    return row + 1


def _located(part: Any) -> Iterator[Any]:
    for each in part if isinstance(part, list) else [part]:
        if isinstance(each, ast.AST):
            yield from (one for one in ast.walk(each) if hasattr(one, "end_lineno"))


@cache
def _parsed(text: str) -> ast.expr:
    return ast.parse(f"({text})", mode="eval").body


def needs_parens(text: str, child: ast.AST, parent: ast.AST) -> bool:
    """Return whether an expression has to stand in parentheses in this place of another."""
    if isinstance(child, (*NO_VALUES, ast.Tuple)):
        return False
    kind = _parsed(text)
    if isinstance(kind, _ATOMS):
        return False
    match parent:
        case ast.BinOp(op=op, right=right):
            if not isinstance(kind, ast.BinOp):
                return not isinstance(kind, ast.UnaryOp)
            own, around = _BINDS.get(type(kind.op), 0), _BINDS.get(type(op), 0)
            return own < around or (own == around and child is right)
        case ast.BoolOp(op=op):
            return isinstance(kind, (ast.IfExp, ast.Lambda)) or (
                isinstance(kind, ast.BoolOp) and type(kind.op) is not type(op) and isinstance(op, ast.And)
            )
        case ast.UnaryOp():
            return not isinstance(kind, ast.Compare) if isinstance(parent.op, ast.Not) else True
        case ast.Compare():
            return not isinstance(kind, ast.BinOp)
        case ast.Attribute() | ast.Starred():
            return True
        case ast.Subscript(value=value) | ast.Call(func=value):
            return child is value
        case ast.IfExp() | ast.comprehension():
            return isinstance(kind, (ast.IfExp, ast.Lambda))
    return False


def flat(text: str) -> str:
    """Return an expression in one line."""
    text = re.sub(r",?\s*\n\s*(?=[)\]}])", "", text)
    return re.sub(r"\s*\n\s*", " ", re.sub(r"(?<=[(\[{])\s*\n\s*", "", text))

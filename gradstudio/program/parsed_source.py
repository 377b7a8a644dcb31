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
        self.spans: dict[ast.AST, tuple[int, int]] = {}
        self.names: dict[ast.AST, frozenset[str]] = {}
        self.inline: dict[str, ast.FunctionDef] = {}
        self._look(self.tree)
        bare = [_bare(function) for function in self.inline.values()]
        self.functions = compile("\n\n".join(map(ast.unparse, bare)), "reference", "exec")
        self.headers = {
            node: _end_of_header(self.lines, node)
            for node in self.spans
            if isinstance(getattr(node, "body", None), list)
        }

    def _look(self, node: ast.AST) -> frozenset[str]:
        names = {node.id} if isinstance(node, ast.Name) else set[str]()
        if isinstance(node, (ast.expr, ast.stmt, ast.keyword, ast.arg)):
            self.spans[node] = self._at(node.lineno, node.col_offset), self._at(node.end_lineno, node.end_col_offset)
        for child in ast.iter_child_nodes(node):
            names |= self._look(child)
        if isinstance(node, ast.FunctionDef) and any(getattr(one, "id", "") == "inline" for one in node.decorator_list):
            self.inline[node.name] = node
        self.names[node] = frozenset(names)
        return self.names[node]

    def _at(self, line: int | None, column: int | None) -> int:
        return self._starts[(line or 1) - 1] + (column or 0)

    def of(self, node: ast.AST) -> str:
        start, end = self.spans[node]
        return self.text[start:end]


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

"""A text with its syntax tree, parsed once; numbers and texts are kept in the tree as written."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any


class Source:
    def __init__(self, text: str) -> None:
        self.lines = [re.sub(r"  # (pyright|noqa): .*", "", line) for line in text.split("\n")]
        self.tree = _AsWritten(self.lines).visit(ast.parse(text))
        self.inline = {each.name: each for each in _functions(self.tree.body) if _is_inline(each)}
        bare = [ast.FunctionDef(each.name, each.args, each.body, [], lineno=1) for each in self.inline.values()]
        self.functions = compile("\n\n".join(map(ast.unparse, bare)), "reference", "exec")
        self._names: dict[ast.AST, frozenset[str]] = {}
        self._codes: dict[ast.AST, Any] = {}

    def names(self, node: ast.AST) -> frozenset[str]:
        """Return every name in an expression."""
        if node not in self._names:
            self._names[node] = frozenset(each.id for each in ast.walk(node) if isinstance(each, ast.Name))
        return self._names[node]

    def code(self, node: ast.expr) -> Any:
        """Return an expression compiled; None for a node that is not an expression by itself."""
        if node not in self._codes:
            try:
                self._codes[node] = compile(f"({ast.unparse(node)})", "reference", "eval")
            except SyntaxError:
                self._codes[node] = None
        return self._codes[node]

    def header(self, node: ast.stmt) -> int:
        """Return the number of lines up to the end of a compound statement's header."""
        row = node.lineno - 1
        while not re.search(r":\s*(#.*)?$", self.lines[row]):
            row += 1
        return row + 1


class _AsWritten(ast.NodeTransformer):
    """Replaces each number and text by a name with the same spelling, except for docstrings."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        return node if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def _as_written(self, node: Any) -> ast.AST:
        text = self._lines[node.lineno - 1][node.col_offset : node.end_col_offset]
        return ast.copy_location(ast.Name(text, ast.Load()), node) if node.lineno == node.end_lineno else node

    visit_Constant = visit_JoinedStr = _as_written


def _functions(body: list[ast.stmt]) -> Iterator[ast.FunctionDef]:
    """Yield the functions of a program, including those inside an if."""
    for node in body:
        if isinstance(node, ast.FunctionDef):
            yield node
        elif isinstance(node, ast.If):
            yield from _functions([*node.body, *node.orelse])


def _is_inline(function: ast.FunctionDef) -> bool:
    return any(getattr(each, "id", "") == "inline" for each in function.decorator_list)

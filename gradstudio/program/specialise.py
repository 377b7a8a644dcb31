"""The specialiser: it keeps the branches of the reference program that an experiment takes, and all comments.

A condition on the knobs that holds at every step, or at none, is decided (expressions.py). A function marked @inline is
inserted at its call."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Any

from gradstudio.core.mistakes import MARK
from gradstudio.program.expressions import Expressions
from gradstudio.program.parsed_source import Source
from gradstudio.program.plan import Plan

WIDEST = 120  # columns


class Specialiser:
    """Writes the lines of a source for one plan."""

    def __init__(self, of: Source, plan: Plan) -> None:
        self._source, self._plan, self._of = of, plan, Expressions(of, plan)

    def program(self) -> str:
        return "\n".join(self._block(self._source.tree.body, 0, 0))

    def _block(self, body: Sequence[ast.stmt], column: int, row: int) -> list[str]:
        """Return the lines of statements, indented by `column`; the comments above them are searched from `row` on."""
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
        """Return the comments and empty lines above a statement; only those on mistakes if it is dropped."""
        lines = []
        for line in above:
            text = line.strip()
            if text.startswith("# ----"):
                continue
            mistake = re.match(rf"{MARK} (\w+): ", text)
            shown = self._can_be_made(mistake[1], whole) if mistake else whole
            if shown:
                lines.append(" " * column + text if text else "")
        return lines

    def _can_be_made(self, mistake: str, whole: bool) -> bool:
        name = f"mistakes_{mistake}"
        return self._plan.ever(lambda knobs: getattr(knobs, name, whole))

    def _statement(self, node: ast.stmt, column: int) -> list[str]:
        match node:
            case ast.Pass() | ast.Global() | ast.AnnAssign(value=None) | ast.ImportFrom(module="typing"):
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
                once = self._block(node.body, column, node.lineno) if self._of.value(count) == 1 else []
                if once and not re.search(rf"\b{number}\b", "\n".join(once)):
                    return once
            case ast.With(items=[ast.withitem(context_expr=context)]) if self._of.text(
                context
            ) == "nullcontext()" or any(
                each.arg == "enabled" and self._of.holds(each.value) is False
                for each in getattr(context, "keywords", ())
            ):
                return self._block(node.body, column, node.lineno)
            case ast.Expr(value=ast.Call(func=ast.Name(id=name)) as call) if name in self._source.inline:
                body, before = self._of.enter(call)
                lines = self._block(body, column, body[0].lineno - 1)
                self._of.leave(before)
                return lines
        return self._compound(node, column) if hasattr(node, "body") else self._simple(node, column)

    def _if(self, node: ast.If, column: int) -> list[str]:
        holds, end = self._of.holds(node.test), self._source.header(node)
        if holds:
            return self._block(node.body, column, end)
        rest = self._else(node, column)
        if holds is False:
            return rest
        body, pad = self._block(node.body, column + 4, end), " " * column
        test = self._of.text(node.test)
        if not body:
            inverted = re.sub(r'^("\w+") in ', r"\1 not in ", test)
            return [f"{pad}if {f'not {test}' if inverted == test else inverted}:", *_deeper(rest)] if rest else []
        lines = [f"{pad}if {test}:{self._comment(end)}", *body]
        if not rest:
            return lines
        below = node.orelse[0]
        while isinstance(below, ast.If) and self._of.holds(below.test) is False and below.orelse:
            below = below.orelse[0]
        if len(node.orelse) == 1 and isinstance(below, ast.If) and self._of.holds(below.test) is None:
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
        return f"  # {comment}" if comment else ""

    def _compound(self, node: Any, column: int) -> list[str]:
        """Return a loop, a context, a function or a class; nothing if its body is empty."""
        end, pad = self._source.header(node), " " * column
        inside = self._block(node.body, column + 4, end)
        if isinstance(node, ast.FunctionDef):
            defaults = dict(zip([each.arg for each in node.args.args][::-1], node.args.defaults[::-1], strict=False))
            kept = [
                each.arg for each in node.args.args
                if each.arg not in defaults or self._of.holds(defaults[each.arg]) is not False
            ]  # fmt: skip
            header = f"def {node.name}({', '.join(kept)}):"
        else:
            fields = {name: value for name, value in ast.iter_fields(node) if name not in ("body", "decorator_list")}
            header = self._of.text(type(node)(**fields, body=[], decorator_list=[], lineno=node.lineno))
        decorators = [f"{pad}@{ast.unparse(each)}" for each in getattr(node, "decorator_list", [])]
        return [*decorators, f"{pad}{header}{self._comment(end)}", *inside] if inside else []

    def _simple(self, node: ast.stmt, column: int) -> list[str]:
        new, pad = self._of.of(node), " " * column
        if new is node:  # as written
            lines = self._source.lines[node.lineno - 1 : node.end_lineno]
            return [pad + line[node.col_offset :] if line else "" for line in lines]
        text = self._of.text(node)
        if isinstance(new, ast.Assign) and text == "{0} = {0}".format(ast.unparse(new.targets[0])):
            return []
        return [*_wrapped(pad, text)[:-1], _wrapped(pad, text)[-1] + self._comment(node.end_lineno or 0)]


def _wrapped(pad: str, text: str) -> list[str]:
    """Return a statement in lines that are not too wide, broken in its outermost brackets."""
    start, end = re.search(r"[(\[]", text), text[-1]
    if len(pad + text) <= WIDEST or not start or end not in ")]":
        return [pad + text]
    return [pad + text[: start.end()], f"{pad}    {text[start.end() : -1]}", pad + end]


def _ends(lines: Sequence[str], column: int) -> bool:
    """Return whether nothing after these lines is reachable."""
    last = next((line[column:] for line in reversed(lines) if line[column : column + 1] not in ("", " ", ")")), "")
    return last.partition(" ")[0] in ("return", "continue", "break")


def _deeper(lines: Sequence[str]) -> list[str]:
    return ["    " + line if line else "" for line in lines]

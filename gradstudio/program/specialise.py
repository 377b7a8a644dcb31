"""The specialiser: of the reference program it keeps the branches that an experiment takes, and all comments.

A condition that holds of the knobs at every step, or at none, is decided (expressions.py). A function marked @inline
stands where it is called."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from gradstudio.core.mistakes import MARK
from gradstudio.program.expressions import Expressions, name_of, without_docstring
from gradstudio.program.parsed_source import Source, flat
from gradstudio.program.plan import Plan

WIDEST = 120  # columns


class Specialiser:
    """Writes the lines of a source for one plan."""

    def __init__(self, of: Source, plan: Plan) -> None:
        self._source, self._plan, self._of = of, plan, Expressions(of, plan)

    def program(self) -> str:
        return "\n".join(self._block(self._source.tree.body, 0, 0))

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
                once = self._block(node.body, column, node.lineno) if self._of.value(count) == 1 else []
                if once and not re.search(rf"\b{number}\b", "\n".join(once)):
                    return once
            case ast.With(items=[item]) if self._of.text(item.context_expr) == "nullcontext()":
                return self._block(node.body, column, node.lineno)
            case ast.With(items=[ast.withitem(context_expr=ast.Call(keywords=keywords))]) if any(
                each.arg == "enabled" and self._of.holds(each.value) is False for each in keywords
            ):
                return self._block(node.body, column, node.lineno)
            case ast.Expr(value=ast.Call(func=ast.Name(id=name)) as call) if name in self._source.inline:
                return self._inlined(call, column)
        if (body := getattr(node, "body", None)) is not None:
            return self._compound(node, body, column)
        return self._simple(node, column)

    def _if(self, node: ast.If, column: int) -> list[str]:
        holds, end = self._of.holds(node.test), self._source.header(node)
        if holds:
            return self._block(node.body, column, end)
        rest = self._else(node, column)
        if holds is False:
            return rest
        body, pad = self._block(node.body, column + 4, end), " " * column
        test = flat(self._of.text(node.test))
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
                    if each.arg not in defaults or self._of.holds(defaults[each.arg]) is not False
                ]
                text = f"def {name}({', '.join(each.arg for each in kept)})"
            case ast.ClassDef(name=name, bases=[base]):
                text = f"class {name}({self._of.text(base)})"
            case ast.For(target=target, iter=each):
                text = f"for {self._of.text(target)} in {self._of.text(each)}"
            case ast.While(test=test):
                text = f"while {self._of.text(test)}"
            case ast.With(items=[item]):
                given = f" as {self._of.text(item.optional_vars)}" if item.optional_vars else ""
                text = f"with {self._of.text(item.context_expr)}{given}"
            case _:
                raise TypeError(f"the reference has a {type(node).__name__}")
        return text

    def _simple(self, node: ast.stmt, column: int) -> list[str]:
        text = self._of.part(node)
        if isinstance(node, ast.Assign) and text == "{0} = {0}".format(self._of.text(node.targets[0])):
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
        function = self._source.inline[name_of(call.func)]
        before, self._of.given = self._of.given, self._of.arguments(call)
        body = without_docstring(function)
        lines = self._block(body, column, body[0].lineno - 1)
        self._of.given = before
        return lines


def _ends(lines: Sequence[str], column: int) -> bool:
    """Return whether nothing after these lines is reached."""
    last = next((line[column:] for line in reversed(lines) if line[column : column + 1] not in ("", " ", ")")), "")
    return last.partition(" ")[0] in ("return", "continue", "break")


def _deeper(lines: Sequence[str]) -> list[str]:
    return ["    " + line if line else "" for line in lines]

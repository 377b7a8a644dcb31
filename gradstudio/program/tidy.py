"""Tidies a specialised program: removes unused functions, values and imports, and adds the blank lines of PEP 8."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from textwrap import dedent
from typing import Any


def split(text: str) -> tuple[list[str], str]:
    """Return the imports of a program, one name each, and the rest, both without unused ones."""
    lines, statements = text.split("\n"), ast.parse(text).body
    imports = [node for node in statements if isinstance(node, (ast.Import, ast.ImportFrom))]
    rest = [node for node in statements if node not in imports]
    names = {node: names_in("\n".join(lines[_start(node) : node.end_lineno])) for node in rest}
    while True:
        used = Counter(name for node in rest for name in names[node])
        kept = [node for node in rest if not (bound := _bound(node)) or used[bound] > (bound in names[node])]
        if len(kept) == len(rest):
            break
        rest = kept
    for node in rest:
        _leave_unnamed(node, lines)
    gone = set[int]()
    for node in {*statements} - {*rest}:
        gone |= set(range(_first(node, lines), node.end_lineno or 0))
    body = "\n".join(line for number, line in enumerate(lines) if number not in gone)
    needed = {line for node in imports for line, name in imports_of(node) if used[name]}
    return sorted(needed | {"import torch"}, key=_place), body


@lru_cache(1000)
def names_in(text: str) -> frozenset[str]:
    """Return every name that is read or written in a text."""
    return frozenset(each.id for each in ast.walk(ast.parse(text)) if isinstance(each, ast.Name))


def imports(lines: Sequence[str], standard: frozenset[str]) -> str:
    """Return imports in two groups: Python's own, then what must be installed."""
    groups = [
        [line for line in lines if (line.split()[1].partition(".")[0] in standard) is own] for own in (True, False)
    ]
    return "\n\n".join("\n".join(group) for group in groups if group)


def space_out(text: str) -> str:
    """Return the lines with blank lines between them: two around a function or class, one before a loop or a comment
    that begins a section."""
    result: list[str] = []
    before, inside = "", False  # the last nonempty line; in a function or a class
    for line in text.split("\n"):
        if not line:
            if result and result[-1] and before.startswith(" "):
                result.append("")
            continue
        if not line.startswith((" ", "]", ")", "}")):
            starts = line.startswith(("def ", "class ", "@"))
            gap = int(line.startswith(("for step", "# ", "torch.manual", "with Join", "if rank == 0")))
            gap = 2 if (starts or inside) and not before.startswith("@") else gap
            gap = 0 if before.startswith("# ") and not starts and not inside else gap
            while result and not result[-1]:
                result.pop()
            result += [""] * (gap if result else 0)
            inside = starts
        result.append(line)
        before = line
    return "\n".join(result)


def _bound(node: Any) -> str:
    """Return the single name that a statement binds, if it does nothing else."""
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name
    return ""


def _start(node: Any) -> int:
    return min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))]) - 1


def _first(node: Any, lines: list[str]) -> int:
    """Return the number of the first line of a statement, with its decorators and the comments above it."""
    first = _start(node)
    while first and lines[first - 1].startswith("#") and "MISTAKE" not in lines[first - 1]:
        first -= 1
    return first


def imports_of(node: ast.AST) -> list[tuple[str, str]]:
    """Return the imports of a statement as separate imports, with the names that they bind."""
    if not isinstance(node, (ast.Import, ast.ImportFrom)):
        return []
    start = f"from {'.' * node.level}{node.module or ''} import" if isinstance(node, ast.ImportFrom) else "import"
    return [
        (f"{start} {each.name} as {each.asname}", each.asname) if each.asname
        else (f"{start} {each.name}", each.name if isinstance(node, ast.ImportFrom) else each.name.partition(".")[0])
        for each in node.names
    ]  # fmt: skip


def _place(line: str) -> tuple[bool, str]:
    return line.startswith("from"), line.split()[1].lower()


def _leave_unnamed(statement: ast.stmt, lines: list[str]) -> None:
    """Give an index that its loop does not use no name."""
    if not any("for index in" in line for line in lines[statement.lineno - 1 : statement.end_lineno]):
        return
    for node in ast.walk(statement):
        if isinstance(node, ast.For):
            body = "\n".join(lines[node.body[0].lineno - 1 : node.body[-1].end_lineno])
            if "index" not in names_in(dedent(body)):
                lines[node.lineno - 1] = lines[node.lineno - 1].replace("for index in", "for _ in")

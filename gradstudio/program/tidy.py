"""Tidies a specialised program: removes unused functions, values and imports, and adds the blank lines of PEP 8."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Sequence
from typing import Any


def split(text: str) -> tuple[list[str], str]:
    """Return the imports of a program, one name each, and the rest, both without unused ones."""
    lines, statements = text.split("\n"), ast.parse(text).body
    imports = [node for node in statements if isinstance(node, (ast.Import, ast.ImportFrom))]
    rest = [node for node in statements if node not in imports]
    names = {node: Counter(names_in(node)) for node in rest}
    while True:
        used = sum((names[node] for node in rest), Counter[str]())
        kept = [node for node in rest if not (bound := _bound(node)) or used[bound] > names[node][bound]]
        if len(kept) == len(rest):
            break
        rest = kept
    gone = set[int]()
    for node in statements:
        if node not in rest:
            gone |= set(range(_first(node, lines), node.end_lineno or 0))
    body = "\n".join(line for number, line in enumerate(lines) if number not in gone)
    needed = {line for node in imports for line, name in imports_of(node) if used[name]}
    return sorted(needed | {"import torch"}, key=_place), _loops(body)


def names_in(node: ast.AST) -> list[str]:
    """Return every name that is read or written in a statement."""
    return [each.id for each in ast.walk(node) if isinstance(each, ast.Name)]


def imports(lines: Sequence[str], standard: frozenset[str]) -> str:
    """Return imports in two groups: Python's own, then what must be installed."""
    groups = [
        [line for line in lines if (line.split()[1].partition(".")[0] in standard) is own] for own in (True, False)
    ]
    return "\n\n".join("\n".join(group) for group in groups if group)


def spaced(text: str) -> str:
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


def _first(node: Any, lines: list[str]) -> int:
    """Return the number of the first line of a statement, with its decorators and the comments above it."""
    first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))]) - 1
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


def _loops(text: str) -> str:
    """Return a text in which a loop with an unused variable does not name it."""
    lines = text.split("\n")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.For) and not any("index" in names_in(each) for each in node.body):
            lines[node.lineno - 1] = lines[node.lineno - 1].replace("for index in", "for _ in")
    return "\n".join(lines)

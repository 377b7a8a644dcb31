"""The program of a studio file: its text as it is, then the loop, in a function so that no name of the loop collides
with one of the file."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Sequence

from gradstudio.core.studio_file import MODULE, StudioFile
from gradstudio.program.tidy import imports_of, names_in


def around(file: StudioFile, docstring: str, settings: str, imports: Sequence[str], loop: str) -> str:
    """Return the whole program. The settings come before the file, which may compute something at its top level; the
    loop gets those of `imports` that the file does not bring."""
    futures, text = _future_imports(file)
    name = "train"
    while re.search(rf"\b{name}\b", file.text):
        name += "_here"
    aside = [_as_a_module(file)] if "__main__" in file.text else []
    above = ["import os"] * ("os." in settings) + ["import sys"] * bool(aside)
    needed = _local_imports(file, imports, loop)
    above += ["", "import torch", "", settings, *aside, "", f"# {file.name}, SHA-256 {file.sha256}", ""]
    loop = "\n".join([*needed, "", loop] if needed else [loop])
    inside = [f"    {line}" if line else "" for line in loop.split("\n")]
    below = ["", "", "# The training", "", "", f"def {name}():", *inside, "", "", f"{name}()", ""]
    return "\n".join([docstring, *futures, *above, text.strip("\n"), *below])


def _local_imports(file: StudioFile, imports: Sequence[str], loop: str) -> list[str]:
    """Return the imports that the loop's function has to make itself: those of `imports` and of Python's own functions
    that the file does not bring, or may rebind. A name counts as bound wherever the file binds it."""
    tree = ast.parse(file.text)
    bound = _bindings(tree)
    brought = {line for node in tree.body for line, _ in imports_of(node)} | {"import torch"}
    doubtful = [name for name in names_in(loop) if hasattr(builtins, name) and ({name, "*"} & bound.keys())]
    needed = [f"from builtins import {', '.join(sorted(doubtful))}"] if doubtful else []
    for line in [*imports, "import torch"]:
        name = line.rpartition(" ")[2].partition(".")[0]
        if line not in brought or "*" in bound or bound.get(name, {line}) != {line}:
            needed.append(line)
    return needed


def _bindings(tree: ast.AST) -> dict[str, set[str]]:
    """Return the names that a file binds, at any depth, each with its binding: an import as it is written, or else a
    line."""
    bindings: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        names = {name: line for line, name in imports_of(node)}
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                names = {name: str(node.lineno)}
            case (
                ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name)
                | ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name))
            ):  # fmt: skip
                names = {name: str(node.lineno)}
            case ast.MatchMapping(rest=str(name)):
                names = {name: str(node.lineno)}
        for name, how in names.items():
            bindings.setdefault(name, set()).add(how)
    return bindings


def _as_a_module(file: StudioFile) -> str:
    return f"""__name__ = "{MODULE}"  # what {file.name} does where it is run by itself is left out
sys.modules[__name__] = sys.modules["__main__"]"""


def _future_imports(file: StudioFile) -> tuple[list[str], str]:
    """Return the imports from __future__, which must come first in a program, and the text without them."""
    lines, imports = re.split("\r\n?|\n", file.text), []  # in Python's own counting
    for node in ast.parse(file.text).body:
        if not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            continue
        imports += [alias.name for alias in node.names]
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        before = lines[first].encode()[: node.col_offset].decode()
        after = lines[last].encode()[node.end_col_offset :].decode()
        lines[first : last + 1] = [f"{before}pass{after}" if after.strip().startswith(";") or before else after.strip()]
        lines[first + 1 : first + 1] = [""] * (last - first)  # the lines of the rest stay where they were
    return [f"from __future__ import {', '.join(dict.fromkeys(imports))}"] if imports else [], "\n".join(lines)

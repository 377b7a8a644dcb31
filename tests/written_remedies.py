"""The remedies that the program can offer, read off its source: whoever adds one has to try it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from gradstudio.core import diagnosis, loop_calls, rules
from gradstudio.core.experiment import KNOBS

RULES = Path(rules.__file__).parent
_LOWER = {"lower": "optimizer.lr=*", "weight_decay": "optimizer.weight_decay=*", "by_norm": "clipping.kind=norm"}


def of_file(path: Path) -> Iterator[str]:
    """The remedies in a file, as knobs to set; `*` stands for what is filled in."""
    tree = ast.parse(path.read_text())
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            text = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
            called = ast.unparse(node.func).split(".")
            text = _LOWER.get(called[0] if called[-1] == "lower" else called[-1], "")
        else:
            continue
        text = f"mistakes.{text}=false" if f"mistakes.{text}" in KNOBS else text
        name, sign, value = text.partition("=")
        if sign and value and (name in KNOBS or name == "*"):
            yield text.replace("*=*", "clipping.max_norm=*")


def of_rules() -> dict[str, list[str]]:
    """The remedies of each rule, those of the calls of a loop, and those that the knobs in force add."""
    files = {path.stem: path for path in sorted(RULES.glob("*.py"))}
    files["loop_order"] = Path(loop_calls.__file__)
    files["offered"] = Path(diagnosis.__file__).parent / "offered_remedies.py"
    found = {rule: list(dict.fromkeys(of_file(path))) for rule, path in files.items()}
    known = {remedy for rule, remedies in found.items() for remedy in remedies if rule != "offered"}
    found["offered"] = [remedy for remedy in found["offered"] if remedy not in known]
    return {rule: remedies for rule, remedies in found.items() if remedies}

"""The thresholds of the rules. The user's rules.toml overrides defaults, with one section for each rule:

[exploding_gradient]
norm = 300.0"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from gradstudio.core import files, strict_toml
from gradstudio.core.diagnosis import added_rules
from gradstudio.core.diagnosis.rule import Rule
from gradstudio.core.diagnosis.rule_names import NAMES, OF_THE_STUDIO
from gradstudio.core.knobs import KnobError, quote
from gradstudio.core.rules import makers
from gradstudio.core.strict_toml import TomlError

Thresholds = Mapping[str, float | int]


def read(path: Path | None = None) -> Mapping[str, Thresholds]:
    """Return the thresholds in the file, by rule; empty if there is no file, or its folder is another user's and cannot
    be searched. KnobError names what is not allowed."""
    path = path or files.user_rules()
    try:
        stamp = os.stat(path)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return {}
    except OSError as fault:
        raise KnobError(f"{path}: {files.reason(fault)}") from None
    return _read(path, stamp.st_mtime_ns, stamp.st_size)


@lru_cache(maxsize=4)
def _read(path: Path, changed: int, size: int) -> Mapping[str, Thresholds]:
    try:
        table = strict_toml.parse(strict_toml.read(path))
    except TomlError as fault:
        raise KnobError(f"{path}{fault}") from None
    return check(table, str(path))


def check(table: Mapping[str, Any], where: str) -> Mapping[str, Thresholds]:
    """Return the table, checked; KnobError names what is not allowed."""
    checked: dict[str, dict[str, float | int]] = {}
    for rule, values in table.items():
        if rule not in NAMES and rule not in added_rules.makers():
            raise KnobError(f"{where}: no rule {quote(rule)}; there are: {', '.join((*NAMES, *added_rules.makers()))}")
        if not isinstance(values, dict):
            raise KnobError(f"{where}: {rule} must be a section with thresholds in it: [{rule}]")
        allowed = thresholds(rule)
        for name, value in values.items():
            if name not in allowed:
                raise KnobError(
                    f"{where}: {rule} has no threshold {quote(name)}; it has: {', '.join(allowed) or 'none'}"
                )
            whole = isinstance(allowed[name], int)
            number = isinstance(value, int) or (isinstance(value, float) and not whole)
            if isinstance(value, bool) or not number or not 0 <= value < float("inf") or (whole and value < 1):
                wanted = "a whole number at least 1" if whole else "a number at least 0"
                raise KnobError(
                    f"{where}: {rule}.{name} = {quote(value)} is not allowed; allowed: {wanted} (default "
                    f"{allowed[name]:g})"
                )
            checked.setdefault(rule, {})[name] = value if whole else float(value)
    return checked


def thresholds(rule: str) -> Thresholds:
    """Return the names of a rule's thresholds and their defaults."""
    made = (makers() | added_rules.makers())[rule]()
    if not dataclasses.is_dataclass(made):
        return {}
    fields = dataclasses.fields(made)
    return {field.name: field.default for field in fields if not field.name.startswith("_")}  # type: ignore[misc]


def make(values: Mapping[str, Thresholds]) -> list[Rule]:
    """Create every rule with these thresholds."""
    return [*(maker(**values.get(name, {})) for name, maker in makers().items()), *added_rules.make(values)]


def all_rules() -> list[Rule]:
    """Create every rule with the user's thresholds."""
    return make(read())


def rules_of_a_script() -> list[Rule]:
    """Create the rules for a watched script, without those whose inputs are unknown there."""
    return [rule for rule in all_rules() if rule.rule not in OF_THE_STUDIO]

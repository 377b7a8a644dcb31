"""The rules, one file each. A rule reads a History step by step and reports what it found.
What rules share is in core/diagnosis/; nothing else is here.
May use core/diagnosis, core/history.py, core/loop_calls.py, core/row.py, core/text.py and core/unknown.py."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from pkgutil import iter_modules

from gradstudio.core.diagnosis.rule import Rule
from gradstudio.core.diagnosis.rule_names import ORDER


@lru_cache(maxsize=1)
def makers() -> dict[str, Callable[..., Rule]]:
    """Return the class of every rule by its name, from causes to effects."""
    files = (import_module(f"{__name__}.{file.name}") for file in iter_modules(__path__))
    rules = [
        each
        for file in files
        for each in vars(file).values()
        if isinstance(each, type) and each.__module__ == file.__name__ and "rule" in vars(each)
    ]
    return {each.rule: each for each in sorted(rules, key=lambda each: ORDER.index(each.rule))}

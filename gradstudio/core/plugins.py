"""Plug-ins: additions by other packages through an entry point of one of GROUPS. One that fails is switched off for the
rest of this process and reported, and everything else continues."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from gradstudio.core.columns import COLUMNS
from gradstudio.core.text import first_line, one_line

GROUPS = ("rules", "gauges", "columns", "exporters", "presets")
LONGEST = 200  # characters of an error

Made = TypeVar("Made")
_off: dict[tuple[str, str], str] = {}
_lock = threading.Lock()


def names(group: str) -> list[str]:
    """Return the names of the plug-ins of a group that are on."""
    return [name for name in _loaded(group) if (group, name) not in _off]


def get(group: str, name: str) -> Any:
    """Return the object that a plug-in adds."""
    return _loaded(group)[name]


def is_on(group: str, name: str) -> bool:
    """Return whether a plug-in exists and was not switched off."""
    return name in _loaded(group) and (group, name) not in _off


def attempt(group: str, name: str, act: Callable[[], Made]) -> Made | None:
    """Return the result of calling a plug-in; None if it fails, and then it is switched off."""
    if (group, name) in _off:
        return None
    try:
        return act()
    except Exception as fault:
        switch_off(group, name, f"{type(fault).__name__}: {first_line(fault, LONGEST)}")
        return None


def switch_off(group: str, name: str, why: str) -> None:
    """Disable a plug-in."""
    with _lock:
        _off.setdefault((group, name), one_line(why))


def problems() -> list[str]:
    """Return a sentence for each plug-in that is switched off."""
    with _lock:
        return [
            f"{name} of gradstudio.{group} failed and is switched off: {why}" for (group, name), why in _off.items()
        ]


def in_words() -> str:
    """Return which plug-ins are on, in words; "" for none."""
    by_group = {group: names(group) for group in GROUPS}
    return "; ".join(f"{group}: {', '.join(there)}" for group, there in by_group.items() if there)


def forget() -> None:
    """Forget all plug-ins, so that they are looked up again."""
    _loaded.cache_clear()
    _entries.cache_clear()
    _off.clear()


@cache
def _entries() -> dict[str, list[Any]]:
    """Return the entry points by group; all packages are scanned once for that."""
    from importlib import metadata  # imported here, as it takes a moment

    entry_points = metadata.entry_points()
    return {
        group: sorted(entry_points.select(group=f"gradstudio.{group}"), key=lambda each: each.name) for group in GROUPS
    }


@cache
def _loaded(group: str) -> dict[str, Any]:
    loaded: dict[str, Any] = {}
    for entry in _entries()[group]:
        if group in ("gauges", "columns") and entry.name in COLUMNS:
            switch_off(group, entry.name, "a column of our own has this name")
        elif (one := attempt(group, entry.name, entry.load)) is not None:
            loaded[entry.name] = one
    return loaded

"""Values of the settings file. A person, a crash or another version may have left anything there: a value that cannot
be used is removed, the default holds, and the window says so once."""

from __future__ import annotations

import math
from collections.abc import Sequence

from PySide6.QtCore import QByteArray, QSettings

from gradstudio.core.knobs import quote
from gradstudio.core.text import one_line

_refused: list[str] = []


def number(name: str, least: float, most: float) -> float | None:
    """Return a number, no less than `least` and no more than `most`; None where none is stored."""
    stored = QSettings().value(name)
    if stored is None:
        return None
    try:
        value = float(str(stored))
    except ValueError:
        value = math.nan
    if math.isfinite(value):
        return min(max(value, least), most)
    _refuse(name, stored)
    return None


def choice(name: str, choices: Sequence[str]) -> str | None:
    """Return one of these texts; None where none of them is stored."""
    stored = QSettings().value(name)
    if stored is None or stored in choices:
        return stored
    _refuse(name, stored)
    return None


def switch(name: str) -> bool | None:
    """Return whether something is on; None where nothing is stored."""
    stored = QSettings().value(name)
    if stored is None:
        return None
    if stored in (True, False, "true", "false"):
        return stored in (True, "true")
    _refuse(name, stored)
    return None


def state(name: str) -> QByteArray | None:
    """Return the state of a window or a splitter; None where none is stored."""
    stored = QSettings().value(name)
    if stored is None or isinstance(stored, QByteArray):
        return stored
    _refuse(name, stored)
    return None


def problem() -> str:
    """Return in one line which values were refused since the last call; empty where none was."""
    told = ", ".join(_refused[:3]) + (", ..." if len(_refused) > 3 else "")
    _refused.clear()
    return f"The settings file had values that cannot be used: {told}. The defaults hold." if told else ""


def _refuse(name: str, value: object) -> None:
    QSettings().remove(name)
    _refused.append(f"{name} = {quote(one_line(str(value)[:200]))}")

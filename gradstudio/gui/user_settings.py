"""Every setting that the window stores for the next start: its key, its default, and its allowed values. The user, a
crash or another version may have left anything in the file: an invalid value is removed, the default applies again, and
the window reports it once."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from PySide6.QtCore import QByteArray, QSettings

from gradstudio.core.knobs import quote
from gradstudio.core.text import one_line

T = TypeVar("T")

LEAST_ZOOM, MOST_ZOOM = 0.8, 2.0
MOST_MEGABYTES = 1 << 20
MOST_FINISHED = 2000  # lessons

_refused: list[str] = []


@dataclass(frozen=True)
class Setting(Generic[T]):
    """One setting. `read` converts the stored value, or raises ValueError; `write` converts it back."""

    key: str
    default: T
    read: Callable[[Any], T]
    write: Callable[[T], object] = lambda value: value

    def get(self) -> T:
        held = QSettings().value(self.key)
        if held is None:
            return self.default
        try:
            return self.read(held)
        except (ValueError, TypeError):
            QSettings().remove(self.key)
            _refused.append(f"{self.key} = {quote(one_line(str(held)[:200]))}")
            return self.default

    def set(self, value: T) -> None:
        """Store a value; None forgets it."""
        if value is None:
            QSettings().remove(self.key)
        else:
            QSettings().setValue(self.key, self.write(value))


def problem() -> str:
    """Return in one line which values were rejected since the last call; empty if none were."""
    text = ", ".join(_refused[:3]) + (", ..." if len(_refused) > 3 else "")
    _refused.clear()
    return f"The settings file had values that cannot be used: {text}. The defaults hold." if text else ""


# ---- allowed values


def number(least: float, most: float) -> Callable[[Any], float]:
    """Return a reader of a number that is clamped to this range."""

    def read(held: Any) -> float:
        value = float(str(held))
        if not math.isfinite(value):
            raise ValueError
        return min(max(value, least), most)

    return read


def choice(choices: Collection[str]) -> Callable[[Any], str]:
    def read(held: Any) -> str:
        if held not in choices:
            raise ValueError
        return held

    return read


def switch(held: Any) -> bool:
    if held not in (True, False, "true", "false"):
        raise ValueError
    return held in (True, "true")


def state(held: Any) -> QByteArray:
    """Read the state of a window or a splitter."""
    if not isinstance(held, QByteArray):
        raise ValueError
    return held


def names(held: Any) -> frozenset[str]:
    """Read a list of short texts. Qt returns one text if there is only one."""
    listed = [held] if isinstance(held, str) else held if isinstance(held, list) else []
    return frozenset(name for name in listed[:MOST_FINISHED] if isinstance(name, str) and 0 < len(name) < 200)


def pairs(held: Any) -> list[tuple[str, str]]:
    """Read a list of pairs of texts; anything else in it is left out."""
    listed = json.loads(str(held))
    return [
        (pair[0], pair[1])
        for pair in (listed if isinstance(listed, list) else [])
        if isinstance(pair, list) and len(pair) == 2 and all(isinstance(part, str) for part in pair)
    ]


def table(held: Any) -> dict[str, list[str]]:
    """Read lists of texts by name; anything else in it is left out."""
    listed = json.loads(str(held))
    return {
        name: values
        for name, values in (listed if isinstance(listed, dict) else {}).items()
        if isinstance(values, list) and all(isinstance(value, str) for value in values)
    }


# ---- the settings

GEOMETRY = Setting[QByteArray | None]("geometry", None, state)
SPLITTER = Setting[QByteArray | None]("splitter", None, state)
PAGE, LARGE_PAGE = Setting[str]("page", "", str), Setting[str | None]("large", "", str)
THEME = Setting[str]("theme", "system", choice(("system", "light", "dark")))
ZOOM = Setting[float]("zoom", 1.0, number(LEAST_ZOOM, MOST_ZOOM))
SPEED = Setting[float | None]("speed", None, number(0, 1000))  # position of the slider
REPLAY_SPEED = Setting[str]("replay/speed", "5", choice(("1", "2", "5", "10", "20")))  # times
SNAPSHOT_MEGABYTES = Setting[float | None]("snapshots/megabytes", None, number(1, MOST_MEGABYTES))
TWO_FUTURES = Setting[bool]("fixes/two_futures", True, switch)
GALLERY_AT_START = Setting[bool]("gallery", True, switch)
FINISHED_LESSONS = Setting[frozenset[str]]("finished", frozenset(), names, sorted)
FOLDER = Setting[str]("folder", "", str)
RECENT_FILES, RECENT_RUNS, RECENT_CHOICES = (
    Setting[list[tuple[str, str]]](f"recent/{kind}", [], pairs, json.dumps) for kind in ("files", "runs", "choices")
)
SEARCHES = Setting[dict[str, list[str]]]("searches", {}, table, json.dumps)


def section_open(title: str, default: bool) -> Setting[bool]:
    """Return the setting whether a section of the form is open."""
    return Setting[bool](f"open/{title}", default, switch)


def plot_option(plot: str, name: str, choices: Collection[str]) -> Setting[str]:
    """Return the setting of a drawing option; the first choice is the default."""
    return Setting[str](f"plot/{plot}/{name}", next(iter(choices)), choice(choices))

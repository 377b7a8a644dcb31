"""Searches of the run list that a person has saved, by name, in the settings file."""

from __future__ import annotations

import json
from collections.abc import Mapping

from PySide6.QtCore import QSettings

from gradstudio.gui.runs.run_search import SORTS, RunSearch

KEY = "searches"
MOST, LONGEST = 30, 60  # searches, and characters of a name


def load() -> dict[str, RunSearch]:
    """Return the saved searches. What another version or a person has left there and cannot be read is left out."""
    try:
        stored = json.loads(str(QSettings().value(KEY, "{}")))
    except ValueError:
        return {}
    found: dict[str, RunSearch] = {}
    for name, values in list(stored.items())[:MOST] if isinstance(stored, dict) else ():
        if isinstance(values, list) and len(values) == 4 and all(isinstance(value, str) for value in values):
            search = RunSearch(*values)
            if search.sort in SORTS and 0 < len(name) <= LONGEST:
                found[name] = search
    return found


def keep(searches: Mapping[str, RunSearch]) -> None:
    """Store the searches in place of those that were there."""
    table = {
        name: [search.words, search.sort, search.preset, search.outcome]
        for name, search in list(searches.items())[:MOST]
    }
    QSettings().setValue(KEY, json.dumps(table))

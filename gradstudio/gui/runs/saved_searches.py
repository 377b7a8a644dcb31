"""Searches of the run list that a person has saved, by name."""

from __future__ import annotations

from collections.abc import Mapping

from gradstudio.gui.runs.run_search import SORTS, RunSearch
from gradstudio.gui.user_settings import SEARCHES

MOST, LONGEST = 30, 60  # searches, and characters of a name


def load() -> dict[str, RunSearch]:
    """Return the saved searches. What another version or a person has left there and cannot be read is left out."""
    return {
        name: RunSearch(*values)
        for name, values in list(SEARCHES.get().items())[:MOST]
        if len(values) == 4 and values[1] in SORTS and 0 < len(name) <= LONGEST
    }


def keep(searches: Mapping[str, RunSearch]) -> None:
    """Keep the searches in place of those that were there."""
    kept = list(searches.items())[:MOST]
    SEARCHES.set({name: [each.words, each.sort, each.preset, each.outcome] for name, each in kept})

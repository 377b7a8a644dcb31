"""The user's saved searches of the run list, by name."""

from __future__ import annotations

from collections.abc import Mapping

from gradstudio.gui.runs.run_search import SORTS, RunSearch
from gradstudio.gui.user_settings import SEARCHES

MOST, LONGEST = 30, 60  # searches, and characters of a name


def load() -> dict[str, RunSearch]:
    """Return the saved searches. Unreadable entries, left by another version or by the user, are left out."""
    return {
        name: RunSearch(*values)
        for name, values in list(SEARCHES.get().items())[:MOST]
        if len(values) == 4 and values[1] in SORTS and 0 < len(name) <= LONGEST
    }


def keep(searches: Mapping[str, RunSearch]) -> None:
    """Store the searches, replacing the former ones."""
    kept = list(searches.items())[:MOST]
    SEARCHES.set({name: [each.words, each.sort, each.preset, each.outcome] for name, each in kept})

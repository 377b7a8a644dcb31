"""The search of the run list: which runs are listed, in which order, and the searches that the user has saved."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradstudio.gui.user_settings import SEARCHES
from gradstudio.session.library.run_entries import Entry
from gradstudio.session.words import run_texts

SORTS: dict[str, tuple[str, Callable[[Entry], Any]]] = {
    "newest": ("Newest", lambda entry: (-entry.started, entry.id)),
    "loss": ("Lowest loss", lambda entry: (_loss(entry), -entry.started, entry.id)),
    "steps": ("Most steps", lambda entry: (-entry.steps, -entry.started, entry.id)),
    "title": ("Title", lambda entry: (entry.title.casefold(), -entry.started, entry.id)),
}
MOST, LONGEST = 30, 60  # searches, and characters of a name


@dataclass(frozen=True)
class RunSearch:
    """The user's search. An empty filter lets every run through."""

    words: str = ""
    sort: str = "newest"
    preset: str = ""
    outcome: str = ""  # as the list shows it

    def matches(self, entries: Sequence[Entry], texts: Sequence[str]) -> list[Entry]:
        """Return the runs that match, in order; `texts` has the searchable text of each run."""
        words = self.words.casefold().split()
        matching = [
            entry
            for entry, text in zip(entries, texts, strict=True)
            if (not self.preset or entry.preset == self.preset)
            and (not self.outcome or run_texts.outcome(entry)[0] == self.outcome)
            and all(word in text for word in words)
        ]
        return sorted(matching, key=SORTS[self.sort][1])


def _loss(entry: Entry) -> float:
    """Return the loss to sort by: a run without a finite loss comes last."""
    return entry.final_loss if entry.final_loss is not None and math.isfinite(entry.final_loss) else math.inf


def load_searches() -> dict[str, RunSearch]:
    """Return the saved searches. Unreadable entries, left by another version or by the user, are left out."""
    return {
        name: RunSearch(*values)
        for name, values in list(SEARCHES.get().items())[:MOST]
        if len(values) == 4 and values[1] in SORTS and 0 < len(name) <= LONGEST
    }


def keep_searches(searches: Mapping[str, RunSearch]) -> None:
    """Store the searches, replacing the former ones."""
    kept = list(searches.items())[:MOST]
    SEARCHES.set({name: [each.words, each.sort, each.preset, each.outcome] for name, each in kept})

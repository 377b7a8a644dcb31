"""The texts of a run in the lists: title, outcome, date, length, tooltip."""

from __future__ import annotations

import time
from html import escape
from typing import NamedTuple

from gradstudio.core.text import number, plural, strong
from gradstudio.session.library.run_entries import Entry
from gradstudio.session.words.outcome_words import Outcome, outcome_key, outcome_of


class RowTexts(NamedTuple):
    """Texts of a row. `short` is used if there is no room for `line`."""

    title: str
    outcome: Outcome
    line: str
    tags: tuple[str, ...] = ()
    note: str = ""
    short: str = ""


def outcome(entry: Entry) -> Outcome:
    """Return the word for the outcome of a run, and its colour."""
    return outcome_of(outcome_key(entry.outcome, entry.findings))


def when(started: float, now: float) -> str:
    """Return when a run began: 'today 10:02', 'yesterday 10:02', '12 Nov 10:02', '2025-11-12'."""
    then, today = time.localtime(started), time.localtime(now)
    clock = time.strftime("%H:%M", then)
    if then[:3] == today[:3]:
        return f"today {clock}"
    if then[:3] == time.localtime(now - 86400)[:3]:
        return f"yesterday {clock}"
    if then.tm_year == today.tm_year:
        return f"{then.tm_mday} {_MONTHS[then.tm_mon - 1]} {clock}"
    return time.strftime("%Y-%m-%d", then)


def line(entry: Entry, now: float, *, short: bool = False) -> str:
    """Return the second line of a row. `short`: without the name of a preset or a watched script, which the tooltip
    shows."""
    branch = f"from step {entry.parent_step:,}" if entry.parent else ""
    loss = "" if entry.final_loss is None else f"loss {number(entry.final_loss)}"
    preset = entry.preset if not entry.parent else ""  # there is no room for both
    if entry.watched:
        preset = "watched" if short else f"watched in {preset}"
    elif short:
        preset = ""
    return " · ".join(
        part for part in (when(entry.started, now), branch, plural(entry.steps, "step", "steps"), loss, preset) if part
    )


def words(entry: Entry, now: float) -> RowTexts:
    """Return the texts of a row."""
    short = line(entry, now, short=True)
    return RowTexts(entry.title, outcome(entry), line(entry, now), entry.tags, entry.note, short)


def spoken(entry: Entry, now: float) -> str:
    """Return all texts of a row in one sentence, for a screen reader."""
    tags = f", tags {', '.join(entry.tags)}" if entry.tags else ""
    note = f", note: {entry.note}" if entry.note else ""
    return f"{entry.title}, {outcome(entry)[0]}, {line(entry, now)}{tags}{note}"


def tip(entry: Entry) -> str:
    """Return the tooltip as rich text; the user's own texts are escaped."""
    accuracy = "" if entry.accuracy is None else f" · accuracy {100 * entry.accuracy:.1f} %"
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.started))
    note = f"<p>{rich(entry.note[:600])}</p>" if entry.note else ""
    branch = f"<br>a branch, from step {entry.parent_step:,} of {escape(entry.parent)}" if entry.parent else ""
    source = f"watched in {escape(entry.preset)}" if entry.watched else f"preset {escape(entry.preset)}"
    return (
        f"<p>{strong(escape(entry.title))}<br>{escape(entry.id)}, {source}{branch}<br>began {began}, "
        f"{number(entry.seconds)} s in steps{accuracy}</p>{note}"
    )


def rich(text: str) -> str:
    """Return a plain text as rich text that shows it unchanged."""
    return escape(text).replace("\n", "<br>")


_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

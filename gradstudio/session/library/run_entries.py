"""The rows of the list of runs: each is exactly what was written, or is reported as damaged."""

from __future__ import annotations

import re
import sqlite3
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gradstudio.core.text import LONGEST_TITLE, shorten
from gradstudio.session.library import checksums, interrupted_runs
from gradstudio.session.library.checksums import LISTED, ChecksumError, of_half
from gradstudio.session.library.field_types import MOST_STEPS, check_types
from gradstudio.session.library.run_values import loads
from gradstudio.session.record.run import OVER

LONGEST_NOTE, LONGEST_TAG, MOST_TAGS = 10_000, 40, 20
DAMAGED = "damaged"  # outcome of an unreadable run
# Exceptions that reading edited values can raise.
DAMAGE = (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError, MemoryError)
_LISTED = ", ".join(LISTED)
_FOUND = (  # the findings of a run that a list shows
    "SELECT run, substr(content, 1, 100) FROM entries WHERE kind = 'finding' "
    "AND run IN (SELECT id FROM runs WHERE status = 'finished')"
)
_WATCHED = "SELECT run FROM entries WHERE kind = 'watched' AND run IN (SELECT id FROM runs)"
_RULE_AND_SEVERITY = re.compile(r'\["(\w+)",\s*"(\w+)"')  # the first two fields of a stored finding
# A damaged page may silently lose rows, so the list is read without its index, and runs that have checksums but no row
# are detected. "NOT INDEXED" is for other tables than `runs`, which has no rowid: a "+" keeps the index out.
LOST = (
    f"SELECT run FROM checksums WHERE part = '{checksums.LIST}' AND typeof(run) = 'text' "
    "AND run NOT IN (SELECT id FROM runs)"
)
# Scanned, not joined: if a name is damaged, SQLite may find the checksum of another part under it.
_SUMS = f"SELECT run, crc FROM checksums WHERE part = '{checksums.LIST}'"
_LATEST = 253_402_300_799.0  # seconds since 1970: the end of the calendar


@dataclass(frozen=True)
class Entry:
    """A run in the list. `outcome` is its status, or "interrupted" if the program that wrote it ended during the
    run."""

    id: str
    title: str
    preset: str
    outcome: str
    started: float  # seconds since 1970
    steps: int
    final_loss: float | None
    accuracy: float | None
    seconds: float
    note: str
    tags: tuple[str, ...]
    deleted: bool
    parent: str | None = None  # the run that it branched from
    parent_step: int | None = None
    watched: bool = False  # whether it was watched in a script rather than trained by the studio
    findings: tuple[tuple[str, str], ...] = ()  # rule and severity of those of a finished run


def lines(connection: sqlite3.Connection, deleted: bool) -> list[Entry]:
    """Return the rows of the list, newest first, followed by the runs whose row is lost. Each text is truncated as it
    is read: in an untrusted file, many may share the pages of one long text."""
    watched = _watched_runs(connection)
    sums = dict(connection.execute(_SUMS).fetchall())
    query = (
        f"SELECT {_LISTED} FROM runs WHERE (deleted IS NOT NULL) = ? "
        "ORDER BY id"  # in storage order; by time, SQLite would use the index or keep all rows to sort them
    )
    lines = connection.execute(query, (deleted,))
    told = _findings(connection)
    entries = [
        _entry(line, sums.get(line["id"]), watched=line["id"] in watched, findings=told.get(line["id"], ()))
        for line in lines
    ]
    entries.sort(key=lambda entry: (entry.started, entry.id), reverse=True)
    return entries + [_damaged(run) for (run,) in (() if deleted else connection.execute(LOST))]


def _watched_runs(connection: sqlite3.Connection) -> set[object]:
    """Return the watched runs; damage elsewhere does not affect the list."""
    with suppress(sqlite3.DatabaseError):
        return {run for (run,) in connection.execute(_WATCHED)}
    return set()


def _findings(connection: sqlite3.Connection) -> dict[object, tuple[tuple[str, str], ...]]:
    """Return rule and severity of each finding of the finished runs; unreadable ones are left out."""
    findings: dict[object, tuple[tuple[str, str], ...]] = {}
    with suppress(sqlite3.DatabaseError):
        for run, content in connection.execute(_FOUND):
            if isinstance(content, str) and (told := _RULE_AND_SEVERITY.match(content)):
                findings[run] = (*findings.get(run, ()), (told[1], told[2]))
    return findings


def outcome_of(row: sqlite3.Row) -> Any:
    """Return the status of a run; "interrupted" if it is unfinished and no longer being written."""
    if not (isinstance(row["status"], str) and isinstance(row["process"], str)):
        return DAMAGED
    return row["status"] if row["status"] in OVER or interrupted_runs.is_alive(row["process"]) else "interrupted"


def searchable_text(entry: Entry) -> str:
    """Return the text that a search is matched against."""
    word = "diverged" if entry.outcome == "nonfinite" else ""  # as the list shows it
    return re.sub(
        r"\s+", " ", " ".join((entry.title, entry.preset, entry.id, entry.outcome, word, entry.note, *entry.tags))
    ).casefold()


def _entry(row: sqlite3.Row, crc: int | None, *, watched: bool, findings: tuple[tuple[str, str], ...]) -> Entry:
    """Return a row of the list; one that is unreadable or differs from what was written is "damaged"."""
    try:
        if crc not in (None, of_half(dict(row), checksums.LIST)):
            raise ChecksumError("its line in the list is not what was written")
        tags = loads(row["tags"])
        entry = Entry(
            id=row["id"], title=row["title"], preset=row["preset_id"], outcome=outcome_of(row),
            started=row["started"], steps=row["steps"], final_loss=loads(row["final_loss"]),
            accuracy=loads(row["accuracy"]), seconds=row["seconds"], note=row["note"],
            tags=tuple(tags) if isinstance(tags, list) else tags, deleted=row["deleted"] is not None,
            parent=row["parent"], parent_step=row["parent_step"], watched=watched, findings=findings,
        )  # fmt: skip
        if 0 <= check_types(entry).started <= _LATEST and 0 <= entry.steps <= MOST_STEPS:
            return _within_limits(entry)
    except DAMAGE:
        pass
    return _damaged(row["id"], row["title"], row["started"], row["steps"], row["deleted"] is not None)


def _damaged(run: Any, title: Any = "", started: Any = 0.0, steps: Any = 0, deleted: bool = False) -> Entry:
    """Return the entry of an unreadable run, with those of these values that can be shown."""
    entry = Entry(
        id=run if isinstance(run, str) else repr(run), title=title if isinstance(title, str) else "", preset="",
        outcome=DAMAGED, started=started if isinstance(started, float) and 0 <= started <= _LATEST else 0.0,
        steps=steps if isinstance(steps, int) and 0 <= steps <= MOST_STEPS else 0, final_loss=None, accuracy=None,
        seconds=0.0, note="", tags=(), deleted=deleted,
    )  # fmt: skip
    return _within_limits(entry)


def _within_limits(entry: Entry) -> Entry:
    """Return the entry with its texts cut to the limits for users."""
    return replace(
        entry, title=shorten(entry.title, LONGEST_TITLE), note=entry.note[:LONGEST_NOTE],
        tags=tuple(tag[:LONGEST_TAG] for tag in entry.tags[:MOST_TAGS]),
    )  # fmt: skip


def missing_log(connection: sqlite3.Connection, path: Path) -> str:
    """Return what is missing from a library without a log whose runs seem to be written: it is a copy."""
    with suppress(sqlite3.Error):
        runs = connection.execute("SELECT * FROM runs").fetchall()
        if written := [str(row["id"]) for row in runs if outcome_of(row) not in (*OVER, "interrupted", DAMAGED)]:
            several = f", and {len(written) - 1:,} more" if len(written) > 1 else ""
            return (
                f"{path} was copied without {path.name}-wal: of {written[0][:80]}{several}, which was being written, "
                "the latest rows may be missing. Copy both files"
            )
    return ""

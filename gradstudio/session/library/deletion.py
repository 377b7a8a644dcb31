"""Deleting runs: first from the list, and later permanently. A run that is being written stays."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Sized

from gradstudio.core.knobs import quote
from gradstudio.session.library import interrupted_runs
from gradstudio.session.library.checksums import updating
from gradstudio.session.library.library_faults import LibraryError
from gradstudio.session.library.run_entries import DAMAGED, LOST, outcome_of
from gradstudio.session.record.run import OVER


def delete(connection: sqlite3.Connection, runs: Iterable[str]) -> None:
    """Remove runs from the list. LibraryError for a run that is being written."""
    for run in runs:
        row = connection.execute("SELECT * FROM runs WHERE id = ?", (run,)).fetchone()
        if row is not None and outcome_of(row) not in (*OVER, DAMAGED):
            _check_ended(connection, run, row["process"])
        with updating(connection, run):
            connection.execute("UPDATE runs SET deleted = ? WHERE id = ?", (time.time(), run))


def restore(connection: sqlite3.Connection, runs: Iterable[str]) -> None:
    """Put deleted runs back into the list."""
    for run in runs:
        with updating(connection, run):
            connection.execute("UPDATE runs SET deleted = NULL WHERE id = ?", (run,))


def remove(connection: sqlite3.Connection, before: float, runs: Iterable[str] | None) -> int:
    """Permanently remove the runs that were deleted before a time, or only these of them. Return their number."""
    staying = _deleted_and_written(connection)
    query = f"DELETE FROM runs WHERE deleted <= ? AND CAST(id AS BLOB) NOT IN ({_marks(staying)})"
    if runs is None:
        return connection.execute(query, (before, *staying)).rowcount
    return sum(
        connection.execute(f"{query} AND id = ?", (before, *staying, run)).rowcount + _remove_orphans(connection, run)
        for run in runs
    )


def _deleted_and_written(connection: sqlite3.Connection) -> list[bytes]:
    """Return the ids of deleted runs that a program is writing. They are read as bytes: a damaged text cannot be
    decoded."""
    rows = connection.execute(
        "SELECT CAST(id AS BLOB), CAST(process AS BLOB) FROM runs WHERE deleted IS NOT NULL "
        f"AND status NOT IN ({_marks(OVER)})",
        tuple(OVER),
    ).fetchall()
    return [run for run, process in rows if _is_written(connection, *(_text(value) for value in (run, process)))]


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _check_ended(connection: sqlite3.Connection, run: str, process: str) -> None:
    """Raise LibraryError if a process may still be writing an unfinished run."""
    if not _is_written(connection, run, process):
        return
    if host := interrupted_runs.other_host(process):
        raise LibraryError(
            f"{run} was not ended by its program on the machine {quote(host)}, which cannot be looked at from here. "
            "If that program is gone, open the run, press Stop, and delete it then"
        )
    raise LibraryError(f"{run} is still running; stop it first")


def _is_written(connection: sqlite3.Connection, run: str, process: str) -> bool:
    """Return whether a process may still be writing an unfinished run. A process on another host cannot be checked, but
    if it is alive it ends the run on request."""
    if interrupted_runs.other_host(process):
        query = "SELECT count(*) FROM requests WHERE run = ? AND word = 'stop'"
        return not connection.execute(query, (run,)).fetchone()[0]
    return interrupted_runs.is_alive(process)


def _marks(values: Sized) -> str:
    """Return a question mark for each value, for a list in SQL."""
    return ", ".join("?" * len(values))


def _remove_orphans(connection: sqlite3.Connection, run: str) -> bool:
    """Remove the remains of a run whose row is lost, and return whether there were any."""
    lost = run in [row[0] for row in connection.execute(LOST)]
    if lost:
        for table in ("rows", "rank_rows", "entries", "snapshots", "checksums"):
            connection.execute(f"DELETE FROM {table} WHERE run = ?", (run,))
    return lost

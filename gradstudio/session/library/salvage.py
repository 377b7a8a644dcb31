"""Salvage: a damaged library is set aside, and the readable runs are copied row by row into a new one."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from gradstudio.core import files
from gradstudio.core.text import plural
from gradstudio.session.library import schema
from gradstudio.session.library.open_files import Identity, identity, other_name

_DISPENSABLE = ("rank_rows", "snapshots", "checksums")
_BESIDE = ("-wal", "-shm")  # suffixes of the files that SQLite writes beside a file


def is_ours(path: Path) -> bool:
    """Return whether a file that SQLite cannot read may be a damaged library, rather than a text file given by
    mistake."""
    with path.open("rb") as file:
        return path.name == files.LIBRARY or file.read(16) == b"SQLite format 3\0"


def set_aside(path: Path, file: Identity | None = None) -> tuple[str, sqlite3.Connection]:
    """Replace a damaged library by a new one with all completely readable runs; the damaged file gets another name.
    Return a message for the user, and the new library. OSError on failure: the damaged file is then where it was.

    `file`: the damaged file. If another one has taken its place, as another program was faster, open that one, without
    a message."""
    file = file or identity(path)
    place = Path(os.path.realpath(path))
    aside, told = Path(other_name(place, "damaged")), ""
    try:
        with files.temporary_folder(place.parent) as folder:
            new = Path(folder, place.name)
            with _locked(place):
                counts = _fill(new, place) if identity(path) == file else ""
            if counts and identity(path) == file:
                _exchange(place, aside, new)
                told = f"The run library was damaged; {counts}. The damaged file is {aside}"
        return told, schema.connect(path)
    except (OSError, ValueError, sqlite3.Error) as fault:
        raise OSError(f"it is damaged, and no new one could be made: {files.reason(fault)}") from fault


@contextmanager
def _locked(place: Path) -> Iterator[None]:
    """Keep other programs from writing what the new library would lack, if SQLite can still lock the file."""
    with closing(sqlite3.connect(f"{place.as_uri()}?mode=rw", uri=True, timeout=schema.PATIENCE)) as held:
        with suppress(sqlite3.DatabaseError):
            held.execute("BEGIN IMMEDIATE")
        yield


def _fill(new: Path, damaged: Path) -> str:
    """Create a library with all completely readable runs. Return how many could be saved. sqlite3.Error if it cannot be
    written."""
    readable: set[str] = set()
    saved: dict[str, bool] = {}  # whether a run has its checksums
    with closing(schema.connect(new)) as connection:
        with closing(sqlite3.connect(f"{damaged.as_uri()}?mode=ro", uri=True)) as old:
            schema.distrust(old)
            with suppress(sqlite3.Error, ValueError):
                schema.check(old, damaged, old.execute("PRAGMA user_version").fetchone()[0])
                readable = _runs(old)
            for run in sorted(readable):
                if found_lines := lines(old, run):
                    connection.execute("BEGIN IMMEDIATE")
                    for table, line in found_lines:
                        put(connection, table, line)
                    connection.execute("COMMIT")
                    saved[run] = any(table == "checksums" for table, _ in found_lines)
        # closing would not report that the disk is full
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    lost, unchecked = len(readable - {*saved}), [*saved.values()].count(False)
    text = f"{plural(len(saved), 'run', 'runs')} could be saved"
    text += f", {unchecked} of them without the checksums that tell damage" if unchecked else ""
    return text + (f", {plural(lost, 'run', 'runs')} could not" if lost else "")


def _exchange(place: Path, aside: Path, new: Path) -> None:
    """Give the damaged file its other name, and put the new one in its place, or do neither. At every moment there is a
    file in the place, unless the file system has no hard links."""
    try:
        os.link(place, aside)
        linked = True
    except OSError:
        os.replace(place, aside)
        linked = False
    try:
        for ending in _BESIDE:  # of the damaged file: it would be applied to the new one
            with suppress(FileNotFoundError):
                os.replace(f"{place}{ending}", f"{aside}{ending}")
        os.replace(new, place)
    except OSError:
        for ending in _BESIDE:
            with suppress(OSError):
                os.replace(f"{aside}{ending}", f"{place}{ending}")
        os.unlink(aside) if linked else os.replace(aside, place)
        raise


def _runs(old: sqlite3.Connection) -> set[str]:
    """Return the readable ids. Each table that names runs is read from either end, up to the damage; a run whose row is
    lost is named by others."""
    ids: set[str] = set()
    for table, key in (("runs", "id"), ("checksums", "run"), ("entries", "run")):
        for order in ("ASC", "DESC"):
            with suppress(sqlite3.Error):
                for (run,) in old.execute(f"SELECT DISTINCT {key} FROM {table} ORDER BY {key} {order}"):
                    if isinstance(run, str):
                        ids.add(run)
    return ids


def lines(old: sqlite3.Connection, run: str) -> list[tuple[str, Sequence[Any]]]:
    """Return the rows of a run, each with its table; none if the run cannot be read completely. Unreadable snapshots
    are left out, as they can be recomputed, and so are the rows of ranks, which are not essential. Checksums are left
    out too: a run with only some of them would not be read."""
    read: list[tuple[str, Sequence[Any]]] = []
    left_out: list[str] = []
    for table in ("runs", "rows", "entries", "rank_rows", "snapshots", "checksums"):
        query = f"SELECT * FROM {table} WHERE {'id' if table == 'runs' else 'run'} = ?"
        try:
            rows = old.execute(query, (run,)).fetchall()
        except sqlite3.Error as fault:
            if table not in _DISPENSABLE and "no such table" not in str(fault):
                return []
            left_out.append(table)
            continue
        if table == "runs" and not rows:
            return []
        read += [(table, line) for line in rows if table != "checksums" or line[1] not in left_out]
    return read


def put(new: sqlite3.Connection, table: str, line: Sequence[Any]) -> None:
    """Write a row into a table."""
    new.execute(f"INSERT INTO {table} VALUES ({','.join('?' * len(line))})", line)

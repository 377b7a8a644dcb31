"""Salvage: a damaged library is set aside, and the runs that can still be read move into a new one."""

from __future__ import annotations

import os
import secrets
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path

from gradstudio.core import files
from gradstudio.core.text import plural
from gradstudio.session.library import schema

_CHILDREN = ("rows", "entries", "snapshots")


def is_ours(path: Path) -> bool:
    """Return whether a file that SQLite cannot read may be a damaged library, rather than a text that was named by
    mistake."""
    with path.open("rb") as file:
        return path.name == files.LIBRARY or file.read(16) == b"SQLite format 3\0"


def set_aside(path: Path) -> tuple[str, sqlite3.Connection]:
    """Rename the damaged file, and open a new one with all runs that can be read whole. Return what to tell a person,
    and the new library. sqlite3.Error or OSError where that fails."""
    path = path.absolute()
    aside = path.with_name(f"{path.stem}-damaged-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}{path.suffix}")
    for ending in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            os.replace(f"{path}{ending}", f"{aside}{ending}")
    connection = schema.connect(path)
    carried, lost = 0, 0
    with suppress(sqlite3.Error), closing(sqlite3.connect(f"{aside.as_uri()}?mode=ro", uri=True)) as old:
        for (run,) in _readable(old, "SELECT id FROM runs"):
            try:
                _carry(old, connection, run)
                carried += 1
            except sqlite3.Error:
                lost += 1
    saved = f"{plural(carried, 'run', 'runs')} could be saved" + (
        f", {plural(lost, 'run', 'runs')} could not" if lost else ""
    )
    return f"The run library was damaged; {saved}. The damaged file is {aside}", connection


def _readable(old: sqlite3.Connection, query: str) -> list[tuple]:
    """Return the lines of an answer, up to where the file breaks off."""
    found = []
    with suppress(sqlite3.Error):
        for line in old.execute(query):
            found.append(line)
    return found


def _carry(old: sqlite3.Connection, new: sqlite3.Connection, run: str) -> None:
    """Copy one run with all its parts, or nothing of it."""
    new.execute("BEGIN IMMEDIATE")
    try:
        for table, key in (("runs", "id"), *((table, "run") for table in _CHILDREN)):
            for line in old.execute(f"SELECT * FROM {table} WHERE {key} = ?", (run,)):
                new.execute(f"INSERT INTO {table} VALUES ({','.join('?' * len(line))})", line)
        new.execute("COMMIT")
    except BaseException:
        if new.in_transaction:
            new.execute("ROLLBACK")
        raise

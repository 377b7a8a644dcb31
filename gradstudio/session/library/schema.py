"""The tables of the library, and how a file of it is opened."""

from __future__ import annotations

import sqlite3
from pathlib import Path

VERSION = 1
_PATIENCE = 5.0  # seconds to wait for another program that writes

# SQLite turns NaN into NULL and -0.0 into 0.0, so measured floats are packed (packing.py) and other values are JSON, in
# which NaN and Inf are written as text. The statements below are part of the format, down to each space: _check
# compares them with those of the file. So a long line is broken with a backslash, which leaves the text as it is.
_TABLES = """
CREATE TABLE runs (
    id TEXT PRIMARY KEY, title TEXT NOT NULL, preset_id TEXT NOT NULL, preset TEXT NOT NULL, \
experiment TEXT NOT NULL, planned TEXT NOT NULL,
    compare_at TEXT NOT NULL, started REAL NOT NULL, status TEXT NOT NULL, message TEXT NOT NULL, \
refused INTEGER NOT NULL, accuracy TEXT NOT NULL,
    seconds REAL NOT NULL, steps INTEGER NOT NULL, first_nonfinite_step INTEGER, \
final_loss TEXT NOT NULL, environment TEXT NOT NULL,
    layers TEXT NOT NULL, note TEXT NOT NULL DEFAULT '', tags TEXT NOT NULL DEFAULT '[]', \
deleted REAL, parent TEXT, parent_step INTEGER,
    process TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX newest ON runs (started);
CREATE TABLE rows (
    run TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE, start INTEGER NOT NULL, \
count INTEGER NOT NULL, columns BLOB NOT NULL,
    layers BLOB NOT NULL, PRIMARY KEY (run, start)
);
CREATE TABLE entries (
    run TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE, kind TEXT NOT NULL, \
number INTEGER NOT NULL, content TEXT NOT NULL,
    PRIMARY KEY (run, kind, number)
) WITHOUT ROWID;
CREATE TABLE snapshots (
    run TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE, step INTEGER NOT NULL, \
content BLOB NOT NULL, PRIMARY KEY (run, step)
);
"""


def connect(path: Path) -> sqlite3.Connection:
    """Open the library in this file, and make one where there is none. sqlite3.DatabaseError where the file is damaged
    or no database; OSError where its folder cannot be made; ValueError where another program or a newer one wrote
    it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None)
    # one damaged text is no reason to lose the list
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    try:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > VERSION:
            raise ValueError(
                f"{path} was written by a newer GradStudio (library version {version}, this one reads {VERSION})"
            )
        if version == 0:
            _make(connection, path)
        _check(connection, path)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")  # a power cut takes the last moment, never the file
        connection.execute("PRAGMA foreign_keys = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _check(connection: sqlite3.Connection, path: Path) -> None:
    """Raise where the tables are not those of a library."""
    found = {
        name: text for name, text in connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
    }
    if found and not found.keys() & {"runs", "rows", "entries"}:
        raise ValueError(f"{path} is no run library: it is the database of another program")
    for statement in _TABLES.split(";\n"):
        if statement.startswith("CREATE TABLE") and found.get(statement.split()[2]) != statement.strip():
            raise sqlite3.DatabaseError(f"the table {statement.split()[2]} is not what it was")


def _make(connection: sqlite3.Connection, path: Path) -> None:
    """Make the tables of a new library."""
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # so that what is deleted gives its space back
    connection.execute("BEGIN IMMEDIATE")
    if connection.execute("PRAGMA user_version").fetchone()[0] == 0:  # nobody else was faster
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise ValueError(f"{path} is no run library: it is the database of another program")
        for statement in _TABLES.split(";\n"):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute("COMMIT")

"""The tables of the library, and how its file is opened.

A file may be untrusted. So nothing in it may execute: views, triggers and anything else that is not ours are rejected.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path

from gradstudio.core import files, network_disk
from gradstudio.core.knobs import quote

VERSION = 10
LONGEST_VALUE = 256 << 20  # bytes of one text or blob: 4096 rows of 1,600 layers take 160 MB
PATIENCE = 5.0  # seconds to wait for another program that writes

# SQLite turns NaN into NULL and -0.0 into 0.0, so measured floats are packed (packing.py) and other values are JSON, in
# which NaN and Inf are written as text. The statements below are part of the format, down to each space: _check
# compares them with those of the file. So a long line is broken with a backslash, which leaves the text as it is. What
# each version adds to the one before; a file of an older version gets it when it is opened.
_ADDED = (
    """
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
""",
    """
CREATE TABLE checksums (
    run TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE, part TEXT NOT NULL, number INTEGER NOT NULL, \
crc INTEGER NOT NULL,
    PRIMARY KEY (run, part, number)
) WITHOUT ROWID;
""",
    "",  # runs of watched scripts, which an older program would treat as its own
    """
CREATE TABLE requests (
    run TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE, number INTEGER NOT NULL, word TEXT NOT NULL, \
factor REAL NOT NULL,
    PRIMARY KEY (run, number)
) WITHOUT ROWID;
""",
    "",  # rows with columns of ranks, which an older program would consider damaged
    """
CREATE TABLE rank_rows (
    run TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE, start INTEGER NOT NULL, \
count INTEGER NOT NULL, ranks INTEGER NOT NULL, figures BLOB NOT NULL,
    PRIMARY KEY (run, start)
);
""",
)


def connect(path: Path, *, on_full_disk: bool = False) -> sqlite3.Connection:
    """Open the library in this file, creating it if there is none. sqlite3.DatabaseError if the file is damaged or not
    a database; OSError if its folder cannot be created; ValueError if it was written by another program or a newer
    version.

    `on_full_disk`: write no file beside it, which a full disk would refuse. No other program can then use the library,
    and a kill in the middle of a change would damage it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        files.check_kind(path)  # SQLite would write a journal beside a device
    except OSError as fault:
        raise ValueError(f"{path} is no run library: {files.reason(fault)}") from None
    connection = _connection(path)
    on_full_disk &= not _unchangeable(path)
    try:
        distrust(connection)
        if on_full_disk:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > VERSION:
            raise ValueError(
                f"{path} was written by a newer GradStudio (library version {version}, this one reads {VERSION})"
            )
        if version > 0:
            check(connection, path, version)
        if version < VERSION:
            _bring_up(connection, path)
            check(connection, path, VERSION)
        if on_full_disk:
            _do_without_log(connection, path)
        elif not _unchangeable(path):
            _keep_log(connection, path)
        connection.execute("PRAGMA synchronous = NORMAL")  # a power cut loses the last moment, never the file
        connection.execute("PRAGMA foreign_keys = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _connection(path: Path) -> sqlite3.Connection:
    """Open the file. If it is not writable, SQLite must be told that it is immutable: it would create files beside it.
    If there is a log, it also needs the log's index: sqlite3.OperationalError without one, as the file is then
    incomplete."""
    if not _unchangeable(path):
        return sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)
    place = os.path.realpath(path)
    log = Path(f"{place}-wal")
    has_log = log.exists() and log.stat().st_size > 0
    if has_log and not os.path.exists(f"{place}-shm"):
        raise sqlite3.OperationalError(f"it cannot be written to; copy it elsewhere together with {log.name}")
    way = "mode=ro" if has_log else "immutable=1"
    return sqlite3.connect(f"{path.as_uri()}?{way}", uri=True, timeout=PATIENCE, isolation_level=None)


def _unchangeable(path: Path) -> bool:
    """Return whether the file or its folder is not writable, or its file system is read-only."""
    effective = os.access in os.supports_effective_ids
    with suppress(OSError):
        if hasattr(os, "statvfs") and os.statvfs(path).f_flag & os.ST_RDONLY:
            return True
        os.stat(path)
        places = (path, os.path.dirname(os.path.realpath(path)))
        return not all(os.access(place, os.W_OK, effective_ids=effective) for place in places)
    return False


def keeps_log(path: Path) -> bool:
    """Return whether SQLite keeps a log beside the file while a program has it open. SQLite itself is asked: a process
    that reads the file and closes it loses all its locks on it, and other processes then remove its log."""
    with suppress(sqlite3.Error), closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    return False


def _keep_log(connection: sqlite3.Connection, path: Path) -> None:
    """Let SQLite keep a log beside the file, so that others can read while one writes. On a network disk that would
    damage it, as machines do not share memory: there readers and writers wait for each other."""
    if not network_disk.kind_of(path):
        _begin_log(connection)
        return
    with suppress(sqlite3.OperationalError):  # a program that has it open with its log
        connection.execute("PRAGMA journal_mode = DELETE")


def _begin_log(connection: sqlite3.Connection) -> None:
    """SQLite does not wait by itself for other programs that open the new file at the same moment."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)


def _do_without_log(connection: sqlite3.Connection, path: Path) -> None:
    """Move the contents of the log into the file, and write none from now on. The index of the log, which this
    connection alone does not need, frees its 32 kB for that. If they are not enough, the library can at least be read.
    """
    with suppress(OSError):
        os.unlink(f"{os.path.realpath(path)}-shm")
    with suppress(sqlite3.OperationalError):
        connection.execute("PRAGMA journal_mode = MEMORY")


def distrust(connection: sqlite3.Connection) -> None:
    """Forbid functions stored in the file, and values larger than any of ours."""
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    # one damaged text is no reason to lose the list
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)


def check(connection: sqlite3.Connection, path: Path, version: int) -> None:
    """Raise if the tables are not those of a library of this version: sqlite3.DatabaseError if one is missing or
    changed, ValueError if there are others."""
    tables = {
        name: (kind, text)
        for kind, name, text in connection.execute("SELECT type, name, sql FROM sqlite_master")
        if not str(name).startswith("sqlite_")
    }
    if tables and not tables.keys() & {"runs", "rows", "entries"}:
        raise ValueError(f"{path} is no run library: it is the database of another program")
    ours = {statement.split()[2]: statement for statement in statements(version)}
    for name in tables.keys() - ours.keys():
        raise ValueError(f"{path} is not opened: it has a {tables[name][0]} {quote(name)} that GradStudio did not make")
    for name, statement in ours.items():
        if tables.get(name, ("", ""))[1] != statement:
            raise sqlite3.DatabaseError(f"the table {name} is not what it was")


def statements(version: int) -> list[str]:
    """Return the statements that create a library of this version."""
    return [part.strip() for added in _ADDED[:version] for part in added.split(";\n") if part.strip()]


def _bring_up(connection: sqlite3.Connection, path: Path) -> None:
    """Create the tables of a new library, or add to an older one what it lacks."""
    if not _tables(connection):  # or the file belongs to another program
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # so that deleting releases space
    connection.execute("BEGIN IMMEDIATE")
    version = connection.execute("PRAGMA user_version").fetchone()[0]  # another program may have been faster
    if version == 0 and _tables(connection):
        raise ValueError(f"{path} is no run library: it is the database of another program")
    for statement in statements(VERSION)[len(statements(version)) :] if version < VERSION else ():
        connection.execute(statement)
    if version < VERSION:
        connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute("COMMIT")


def _tables(connection: sqlite3.Connection) -> int:
    return connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]

"""The faults of a library: what is told of them, and which of them pass."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class LibraryError(ValueError):
    """The library cannot do what was asked. The text is one line, fit for a person."""


class NoLibraryError(LibraryError):
    """There is something else where the library should be."""


class ReplacedError(sqlite3.OperationalError):
    """The file is no longer in its place, so nobody would read what is written into it."""


def is_damage(fault: BaseException) -> bool:
    """Return whether a fault of the database means that its file is damaged, rather than that a disk is full or another
    program writes."""
    return type(fault) is sqlite3.DatabaseError or (
        isinstance(fault, sqlite3.OperationalError)
        and any(sign in str(fault) for sign in ("no such", "has no column", "malformed"))
    )


def is_lock(fault: BaseException) -> bool:
    """Return whether a fault, or the one that a LibraryError tells of, means that another program holds the library, or
    has just replaced it: it can be written a moment later."""
    cause = fault.__context__ if isinstance(fault, LibraryError) else fault
    if isinstance(cause, ReplacedError):
        return True
    code = getattr(cause, "sqlite_errorcode", 0)  # none where the fault is not of SQLite itself
    return code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


@contextmanager
def library_errors(path: Path) -> Iterator[None]:
    """Turn a fault of the database at a path, or of its disk, into a LibraryError."""
    try:
        yield
    except (sqlite3.Error, OSError, UnicodeError) as fault:
        raise LibraryError(f"the run library {path}: {fault}") from None

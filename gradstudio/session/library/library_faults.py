"""The faults of a library: their messages, and which of them are transient."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class LibraryError(ValueError):
    """The library cannot do what was requested. The text is one line for the user."""


class NoLibraryError(LibraryError):
    """There is something else in the library's place."""


class ReplacedError(sqlite3.OperationalError):
    """The file has been replaced, so nobody would read what is written to it."""


def is_damage(fault: BaseException) -> bool:
    """Return whether a database error means that its file is damaged, rather than that a disk is full or another
    program is writing."""
    return type(fault) is sqlite3.DatabaseError or (
        isinstance(fault, sqlite3.OperationalError)
        and any(sign in str(fault) for sign in ("no such", "has no column", "malformed"))
    )


def is_lock(fault: BaseException) -> bool:
    """Return whether an error, or the cause of a LibraryError, means that another program has locked the library or has
    just replaced it: a retry can succeed."""
    cause = fault.__context__ if isinstance(fault, LibraryError) else fault
    if isinstance(cause, ReplacedError):
        return True
    code = getattr(cause, "sqlite_errorcode", 0)  # none if the error is not from SQLite itself
    return code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


@contextmanager
def library_errors(path: Path) -> Iterator[None]:
    """Turn an error of the database at a path, or of its disk, into a LibraryError."""
    try:
        yield
    except (sqlite3.Error, OSError, UnicodeError) as fault:
        raise LibraryError(f"the run library {path}: {fault}") from None

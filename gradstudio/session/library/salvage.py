"""Salvage: a damaged library is set aside, and the runs that can still be read move into a new one."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from gradstudio.core import files
from gradstudio.core.text import plural
from gradstudio.session.library import checksums, schema
from gradstudio.session.library.open_files import Identity, identity, other_name

_NAMING = (  # what names the runs, with the order to come
    "SELECT id FROM runs ORDER BY id",
    "SELECT DISTINCT run FROM checksums ORDER BY run",
    "SELECT DISTINCT run FROM entries ORDER BY run",
)
_BESIDE = ("-wal", "-shm")  # endings of what SQLite writes beside a file
# Where SQLite's header has what belongs to one file, not to all of one schema. Source: sqlite.org/fileformat2.html
_COUNTER, _PAGES, _FREE, _VALID_FOR = slice(24, 28), slice(28, 32), slice(32, 40), slice(92, 96)


def is_ours(path: Path) -> bool:
    """Return whether a file that SQLite cannot read may be a damaged library, rather than a text that was named by
    mistake."""
    with path.open("rb") as file:
        return path.name == files.LIBRARY or file.read(16) == b"SQLite format 3\0"


def set_aside(path: Path, file: Identity | None = None) -> tuple[str, sqlite3.Connection]:
    """Put a new library with all runs that can be read whole in the place of a damaged one, which gets another name.
    Return what to tell a person, and the new library. OSError where that fails: the damaged file is then where it was.

    `file`: the file that is damaged. Where another one has taken its place, as another program was faster, open that
    one, with nothing to tell."""
    file = file or identity(path)
    place = Path(os.path.realpath(path))
    aside, told = Path(other_name(place, "damaged")), ""
    try:
        with files.temporary_folder(place.parent) as folder:
            new = Path(folder, place.name)
            with _held(place):
                counts = _fill(new, place) if identity(path) == file else ""
            if counts and identity(path) == file:
                _exchange(place, aside, new)
                told = f"The run library was damaged; {counts}. The damaged file is {aside}"
        return told, schema.connect(path)
    except (OSError, ValueError, sqlite3.Error) as fault:
        raise OSError(f"it is damaged, and no new one could be made: {files.reason(fault)}") from fault


@contextmanager
def _held(place: Path) -> Iterator[None]:
    """Keep other programs from writing what the new library would lack, where SQLite can still lock the file."""
    with closing(sqlite3.connect(f"{place.as_uri()}?mode=rw", uri=True, timeout=schema.PATIENCE)) as held:
        with suppress(sqlite3.DatabaseError):
            held.execute("BEGIN IMMEDIATE")
        yield


def _fill(new: Path, damaged: Path) -> str:
    """Make a library with all runs that can be read whole. Return how many could be saved. OSError where it cannot be
    written."""
    found: set[str] = set()
    saved: dict[str, bool] = {}  # whether a run has its checksums
    with closing(schema.connect(new)) as connection:
        for opened in (_as_it_is, _with_new_first_page):
            with suppress(sqlite3.Error, ValueError), opened(damaged) as old:
                runs = _runs(old)
                found |= runs
                for run in runs - {*saved}:
                    with suppress(sqlite3.Error):
                        saved[run] = _carry(old, connection, run)
                if {*saved} == found and saved:
                    break
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()  # closing would not tell that the disk is full
    lost, unchecked = len(found - {*saved}), [*saved.values()].count(False)
    told = f"{plural(len(saved), 'run', 'runs')} could be saved"
    told += f", {unchecked} of them without the checksums that tell damage" if unchecked else ""
    return told + (f", {plural(lost, 'run', 'runs')} could not" if lost else "")


def _exchange(place: Path, aside: Path, new: Path) -> None:
    """Give the damaged file its other name, and put the new one in its place; or do nothing of it. Between the two
    names there is always a file in the place, unless the file system has no hard links."""
    try:
        os.link(place, aside)
        linked = True
    except OSError:
        os.replace(place, aside)
        linked = False
    try:
        for ending in _BESIDE:  # of the damaged file: it would become part of the new one
            with suppress(FileNotFoundError):
                os.replace(f"{place}{ending}", f"{aside}{ending}")
        os.replace(new, place)
    except OSError:
        for ending in _BESIDE:
            with suppress(OSError):
                os.replace(f"{aside}{ending}", f"{place}{ending}")
        os.unlink(aside) if linked else os.replace(aside, place)
        raise


@contextmanager
def _as_it_is(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a damaged library whose tables are still known. sqlite3.Error or ValueError where they are not."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as old:
        schema.distrust(old)
        schema.check(old, path, old.execute("PRAGMA user_version").fetchone()[0])
        yield old


@contextmanager
def _with_new_first_page(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a copy of a library whose first page is damaged, with that of a new library in its place: it says which
    tables there are and where they begin, and that is the same in all libraries of one version."""
    with files.temporary_folder(path.parent) as folder:
        new, copy = Path(folder, "new"), Path(folder, "copy")
        with _written():
            schema.connect(new).close()
        first = bytearray(new.read_bytes())
        size = int.from_bytes(first[16:18], "big")
        for ending in ("", "-wal"):
            with suppress(FileNotFoundError):
                _copy(f"{path}{ending}", f"{copy}{ending}")
        pages = copy.stat().st_size // size
        first[_PAGES], first[_FREE], first[_VALID_FOR] = pages.to_bytes(4, "big"), bytes(8), first[_COUNTER]
        with copy.open("r+b") as file:
            file.write(first[:size])
        with closing(sqlite3.connect(copy)) as old:
            schema.distrust(old)
            yield old


def _copy(damaged: str, copy: str) -> None:
    """Copy a file. sqlite3.DatabaseError where the disk cannot read it, any other OSError passes through."""
    try:
        shutil.copyfile(damaged, copy)
    except OSError as fault:
        if fault.errno == errno.EIO:
            raise sqlite3.DatabaseError(str(fault)) from fault
        raise


@contextmanager
def _written() -> Iterator[None]:
    """Turn a fault of what is written into an OSError, which ends the salvage: the runs that are not saved because of
    a full disk may be sound."""
    try:
        yield
    except sqlite3.OperationalError as fault:
        raise OSError(str(fault)) from fault


def _runs(old: sqlite3.Connection) -> set[str]:
    """Return the ids that can be read. Each table that names runs is read from either end, up to where the file breaks
    off; a run whose line is lost is named by others."""
    found: set[str] = set()
    for query in _NAMING:
        for order in ("ASC", "DESC"):
            with suppress(sqlite3.Error):
                for (run,) in old.execute(f"{query} {order}"):
                    if isinstance(run, str):
                        found.add(run)
    return found


def _carry(old: sqlite3.Connection, new: sqlite3.Connection, run: str) -> bool:
    """Copy one run with all its parts, or nothing of it. Return whether it has its checksums: those that cannot be read
    whole are left out, for a run with a part of them would not be read. A library of version 1 has none. OSError where
    the new library cannot be written."""
    checked = True
    try:
        sums = list(_lines(old, "checksums", "run", run))
    except sqlite3.Error as fault:
        sums, checked = [], "no such table" in str(fault)
    with _written():
        new.execute("BEGIN IMMEDIATE")
    try:
        for table, line in _parts(old, run, sums):
            with _written():
                _put(new, table, line)
        with _written():
            new.execute("COMMIT")
    except BaseException:
        if new.in_transaction:
            new.execute("ROLLBACK")
        raise
    return checked


def _parts(old: sqlite3.Connection, run: str, sums: Sequence[Sequence[Any]]) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield the lines of a run, each with its table. Snapshots that cannot be read are left out: they are as large as
    all else together, and can be made again. So are the rows of its ranks, without which all else is still a run."""
    if not (line := _lines(old, "runs", "id", run).fetchone()):
        raise sqlite3.DataError(f"the line of {run} is lost")
    yield "runs", line
    for table in ("rows", "entries"):
        for line in _lines(old, table, "run", run):
            yield table, line
    snapshots: list[Sequence[Any]] = []
    with suppress(sqlite3.Error):
        snapshots = list(_lines(old, "snapshots", "run", run))
    of_ranks = _rank_rows(old, run, sums)
    yield from (("snapshots", line) for line in snapshots)
    yield from (("rank_rows", line) for line in of_ranks)
    yield from (("checksums", line) for line in sums if of_ranks or line[1] != checksums.RANKS)


def _rank_rows(old: sqlite3.Connection, run: str, sums: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
    """Return what the ranks of a run measured; nothing where it is not whole. A library of version 5 has no such table,
    and where its first page is lost another one is found in its place, so only lines that match their checksums
    count."""
    lines: list[Sequence[Any]] = []
    with suppress(sqlite3.Error):
        lines = list(_lines(old, "rank_rows", "run", run))
    needed = {number: crc for _, part, number, crc in sums if part == checksums.RANKS}
    return lines if {line[1]: checksums.of_values(line[1:]) for line in lines} == needed else []


def _lines(old: sqlite3.Connection, table: str, key: str, run: str) -> sqlite3.Cursor:
    return old.execute(f"SELECT * FROM {table} WHERE {key} = ?", (run,))


def _put(new: sqlite3.Connection, table: str, line: Sequence[Any]) -> None:
    new.execute(f"INSERT INTO {table} VALUES ({','.join('?' * len(line))})", line)

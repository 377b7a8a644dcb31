"""The library of runs: it lists them, reads one back, and keeps what a person does with them."""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gradstudio.core import files
from gradstudio.core.history import BLOCK, COLUMNS, LAYER_METRICS, OLDER, History
from gradstudio.core.knobs import quote
from gradstudio.core.rank_figures import RANK_COLUMNS
from gradstudio.core.ranks_allowed import SEVERAL
from gradstudio.core.text import LONGEST_TITLE, plural, shorten
from gradstudio.session.library import checksums, interrupted_runs, salvage, schema
from gradstudio.session.library.checksums import LISTED, ChecksumError, check_run, of_half, sealed
from gradstudio.session.library.conforming import MOST_STEPS, conforming
from gradstudio.session.library.open_files import Identity, OpenFile, identity, make_way
from gradstudio.session.library.packing import PackingError, unpack
from gradstudio.session.library.run_values import dumps, layers_from, loads, run_from
from gradstudio.session.record.run import OVER, Run

LONGEST_NOTE, LONGEST_TAG, MOST_TAGS = 10_000, 40, 20
MOST_LAYERS = 2000  # of a run: 100 blocks of a transformer have 1,600
# Rows that unpack to more bytes than PLENTY, and to more than DENSEST times their own, are nobody's measurements: the
# time of a step alone is noise.
PLENTY, DENSEST = 1 << 30, 200
_LISTED = ", ".join(LISTED)
_FOUND = (  # what a list tells of the findings of a run
    "SELECT run, substr(content, 1, 100) FROM entries WHERE kind = 'finding' "
    "AND run IN (SELECT id FROM runs WHERE status = 'finished')"
)
_WATCHED = "SELECT run FROM entries WHERE kind = 'watched' AND run IN (SELECT id FROM runs)"
_RULE_AND_SEVERITY = re.compile(r'\["(\w+)",\s*"(\w+)"')  # the first two fields of a stored finding
DAMAGED = "damaged"  # outcome of a run that cannot be read
# What reading values that somebody changed can raise.
DAMAGE = (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError, MemoryError)
# A damaged page may lose lines without a word, so the list is made without its index, and runs are missed that have
# checksums and no line. "NOT INDEXED" is for other tables than `runs`, which has no rowid: a "+" keeps the index out.
_LOST = (
    f"SELECT run FROM checksums WHERE part = '{checksums.LIST}' AND typeof(run) = 'text' "
    "AND run NOT IN (SELECT id FROM runs)"
)
# Read from end to end, not joined: where a name is damaged, SQLite may find the checksum of another part under it.
_SUMS = f"SELECT run, crc FROM checksums WHERE part = '{checksums.LIST}'"
_PARTS = (  # of a run, apart from its line
    "SELECT start, count, columns, layers FROM rows WHERE run = :run AND start + count > :start ORDER BY start",
    "SELECT start, count, ranks, figures FROM rank_rows WHERE run = :run ORDER BY start",
    "SELECT kind, content FROM entries WHERE run = :run ORDER BY kind, number",
    "SELECT part, number, crc FROM checksums WHERE run = :run",
)
_FIRST = -(1 << 63)  # the smallest number of SQLite
_LATEST = 253_402_300_799.0  # seconds since 1970: the end of the calendar


class LibraryError(ValueError):
    """The library cannot do what was asked. The text is one line, fit for a person."""


class NoLibraryError(LibraryError):
    """There is something else where the library should be."""


class ReplacedError(sqlite3.OperationalError):
    """The file is no longer in its place, so nobody would read what is written into it."""


@dataclass(frozen=True)
class Entry:
    """A run in the list. `outcome` is its status, or "interrupted" where the program that wrote it ended during the
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
    watched: bool = False  # whether it was watched in a script, rather than trained by the studio
    findings: tuple[tuple[str, str], ...] = ()  # rule and severity of those of a finished run


class Library:
    """A connection to the library's file; each thread has its own. Its methods raise LibraryError for what the file or
    its disk does not allow."""

    def __init__(self, path: Path, *, on_full_disk: bool = False) -> None:
        path = self.path = path.absolute()
        self.notice = ""  # what to tell of a file that was damaged, and what was saved
        make_way(path)
        file = identity(path)  # somebody may replace it while it is opened
        try:
            connection = schema.connect(path, on_full_disk=on_full_disk)
        except sqlite3.OperationalError as fault:  # locked, no folder to write to: the file may be all right
            raise LibraryError(f"the run library {path} cannot be opened: {fault}") from None
        except sqlite3.DatabaseError as fault:
            if not salvage.is_ours(path):
                raise NoLibraryError(f"{path} is no run library: {fault}") from None
            connection, file = self._salvaged(file), None
        except OSError as fault:
            raise LibraryError(f"the run library {path} cannot be opened: {files.reason(fault)}") from None
        except ValueError as fault:
            raise NoLibraryError(str(fault)) from None
        self._opened(connection, file)

    def close(self) -> None:
        """Close the connection."""
        if self.replaced:
            with suppress(sqlite3.Error):
                self.finish_log()
        self._connection.close()
        self._open.close()

    def finish_log(self) -> None:
        """Empty the log, unless somebody is reading or the disk is full: it is whole where it is, but beside another
        file it would destroy that (open_files.py)."""
        self._connection.execute("PRAGMA busy_timeout = 0")
        try:
            with suppress(sqlite3.OperationalError):
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        finally:
            self._connection.execute(f"PRAGMA busy_timeout = {int(1000 * schema.PATIENCE)}")

    def set_aside(self) -> None:
        """Go on with a new file in place of a damaged one, with all that could be saved. Where another program was
        faster, go on with its file. LibraryError where that fails: the damaged file is then open again, or
        `replaced` is true."""
        replaced, file = self.replaced, self._open.file
        self.close()
        if replaced:
            self.__init__(self.path)
            return
        try:
            connection = self._salvaged(file)
        except LibraryError:
            with suppress(sqlite3.Error, OSError, ValueError):
                self._opened(schema.connect(self.path), file)
            raise
        self._opened(connection)

    @property
    def replaced(self) -> bool:
        """True once somebody has deleted or replaced the file that was opened, or it was closed."""
        return self._open.replaced

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Write everything within, or nothing of it. sqlite3.Error passes through."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            if self.replaced:  # while this waited for the program that saved what is in the file
                raise ReplacedError("somebody has replaced the file; try again")
            yield self._connection
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:  # SQLite rolls back some faults by itself
                self._connection.execute("ROLLBACK")
            raise

    # ---- finding

    def entries(self, search: str = "", *, deleted: bool = False) -> list[Entry]:
        """Return the runs, newest first, that have every word of `search` in title, preset, id, outcome, note or
        tags."""
        with self._said():
            try:
                listed = self._lines(deleted)
            except sqlite3.DatabaseError as fault:
                if not is_damage(fault):
                    raise
                self.set_aside()
                listed = self._lines(deleted)
        words = search.casefold().split()
        return [entry for entry in listed if all(word in searched(entry) for word in words)]

    def _lines(self, deleted: bool) -> list[Entry]:
        """Return the lines of the list, newest first, and behind them the runs that have lost theirs. Each line is cut
        as it is read: in the file of somebody else, many may share the pages of one long text."""
        watched = self._watched()
        sums = dict(self._connection.execute(_SUMS).fetchall())
        query = (
            f"SELECT {_LISTED} FROM runs WHERE (deleted IS NOT NULL) = ? "
            "ORDER BY id"  # as the lines lie there; by time, SQLite would use the index or keep all lines to sort them
        )
        lines = self._connection.execute(query, (deleted,))
        told = self._findings()
        found = [
            self._entry(line, sums.get(line["id"]), watched=line["id"] in watched, findings=told.get(line["id"], ()))
            for line in lines
        ]
        found.sort(key=lambda entry: (entry.started, entry.id), reverse=True)
        return found + [_damaged(run) for (run,) in (() if deleted else self._connection.execute(_LOST))]

    def _watched(self) -> set[object]:
        """Return the runs that were watched; what is damaged elsewhere is no reason to lose the list."""
        with suppress(sqlite3.DatabaseError):
            return {run for (run,) in self._connection.execute(_WATCHED)}
        return set()

    def _findings(self) -> dict[object, tuple[tuple[str, str], ...]]:
        """Return rule and severity of each finding of the finished runs; one that cannot be read is left out."""
        found: dict[object, tuple[tuple[str, str], ...]] = {}
        with suppress(sqlite3.DatabaseError):
            for run, content in self._connection.execute(_FOUND):
                if isinstance(content, str) and (told := _RULE_AND_SEVERITY.match(content)):
                    found[run] = (*found.get(run, ()), (told[1], told[2]))
        return found

    def version(self) -> int:
        """Return a number that changes once another connection has changed the library. This is cheap."""
        with self._said():
            return self._connection.execute("PRAGMA data_version").fetchone()[0]

    def find(self, text: str) -> str:
        """Return the id of the run whose id is `text`, or alone begins with it; "last" is the newest run."""
        with self._said():
            ids = [
                row[0]
                for row in self._connection.execute(
                    "SELECT id FROM runs WHERE deleted IS NULL AND typeof(id) = 'text' ORDER BY +started DESC, id DESC"
                )
            ]
            ids += [run for (run,) in self._connection.execute(_LOST)]
        if text == "last" and ids:
            return ids[0]
        found = [text] if text in ids else [known for known in ids if text and known.startswith(text)]
        if len(found) == 1:
            return found[0]
        if found:
            raise LibraryError(
                f"{quote(text)} could be {plural(len(found), 'run', 'runs')}: "
                f"{', '.join(found[:3])}{', …' if len(found) > 3 else ''}"
            )
        newest = f"; the newest is {ids[0]}" if ids else ", which is empty"
        raise LibraryError(f"no run {quote(text)} in the library {self.path}{newest}; `gradstudio runs` lists them")

    def load(self, run: str, known: History | None = None) -> Run:
        """Return a run as it was measured. `known`: what an earlier reading of it gave, of which the full blocks of
        rows are not read again."""
        with self._said(), self._at_one_moment():
            row = self._connection.execute("SELECT * FROM runs WHERE id = ?", (run,)).fetchone()
            if row is None:
                raise LibraryError(f"no run {quote(run)} in the library {self.path}")
            try:
                history = History(layers_from(row["layers"]))
                if known is not None and known.layers == history.layers and not known.ranks.ranks:
                    history = known.full_blocks()
                shared = len(history)
                asked = {"run": run, "start": shared or _FIRST}
                chunks, of_ranks, lines, sums = (self._connection.execute(query, asked).fetchall() for query in _PARTS)
                entries: dict[str, list[str]] = {}
                for kind, content in lines:
                    entries.setdefault(kind, []).append(content)
                if shared:
                    read = {chunk["start"] for chunk in chunks}
                    sums = [(part, at, crc) for part, at, crc in sums if part != checksums.ROWS or at in read]
                check_run(dict(row), chunks, entries, sums, of_ranks)
                found = {kind: [loads(content) for content in contents] for kind, contents in entries.items()}
                _add_rows(history, chunks)
                _add_ranks(history, of_ranks)
                if row["steps"] and not history:
                    raise PackingError("its rows are missing")
                read = run_from(row, found, history, self._outcome(row), self._ancestors(row))
                if history.ranks.ranks not in (0, read.experiment.distributed.ranks):
                    raise PackingError(f"its rows are of {history.ranks.ranks} ranks")
                return read
            except DAMAGE as fault:
                what = " ".join(str(fault).split())[:200] or type(fault).__name__
                raise LibraryError(f"the run {run} in {self.path} is damaged: {what}") from None

    def snapshots(self, runs: Iterable[str]) -> list[tuple[str, int, bytes]]:
        """Return run, step and bytes of every snapshot that is stored of these runs."""
        with self._said():
            found = [
                self._connection.execute("SELECT run, step, content FROM snapshots WHERE run = ? ORDER BY step", (run,))
                for run in runs
            ]
            return [(str(row["run"]), row["step"], row["content"]) for rows in found for row in rows]

    def family(self, run: str) -> list[str]:
        """Return the ids of a run's family: all that it branched from and all that branched from those, with itself,
        each behind its parent."""
        with self._said():
            parents = dict(
                self._connection.execute(
                    "SELECT id, parent FROM runs WHERE deleted IS NULL ORDER BY +started"
                ).fetchall()
            )
        root, seen = run, {run}
        while parents.get(root) in parents and parents[root] not in seen:
            root = parents[root]
            seen.add(root)
        found = [root]
        for member in found:
            found += [other for other, parent in parents.items() if parent == member and other not in found]
        return found

    def line(self, run: Run) -> list[Run]:
        """Return the runs that a branch comes from, the oldest first, as far as they are here and undamaged."""
        found = []
        for id in run.ancestors:
            with suppress(LibraryError):
                found.append(self.load(id))
        return found

    def rename(self, run: str, title: str) -> None:
        """Give a run another title; LibraryError where it is too long."""
        if not 0 < len(title) <= LONGEST_TITLE:
            raise LibraryError(f"a title of {len(title):,} characters is not allowed; allowed: 1 to {LONGEST_TITLE}")
        with self._said(), self.transaction() as connection, sealed(connection, run):
            connection.execute("UPDATE runs SET title = ? WHERE id = ?", (title, run))

    # ---- what a person does with a run

    def annotate(self, run: str, *, note: str | None = None, tags: Sequence[str] | None = None) -> None:
        """Give a run a note or tags; LibraryError where they are too long."""
        if note is not None and len(note) > LONGEST_NOTE:
            raise LibraryError(f"a note of {len(note):,} characters is too long; allowed: at most {LONGEST_NOTE:,}")
        if tags is not None:
            tags = list(dict.fromkeys(" ".join(tag.split()) for tag in tags if tag.strip()))
            if len(tags) > MOST_TAGS or any(len(tag) > LONGEST_TAG for tag in tags):
                raise LibraryError(f"allowed: at most {MOST_TAGS} tags of at most {LONGEST_TAG} characters")
        with self._said(), self.transaction() as connection, sealed(connection, run):
            if note is not None:
                connection.execute("UPDATE runs SET note = ? WHERE id = ?", (note, run))
            if tags is not None:
                connection.execute("UPDATE runs SET tags = ? WHERE id = ?", (dumps(tags), run))

    def request(self, run: str, word: str, factor: float) -> None:
        """Ask something of a run that some program trains now (requests.py); LibraryError where it is over."""
        with self._said(), self.transaction() as connection:
            row = connection.execute("SELECT * FROM runs WHERE id = ?", (run,)).fetchone()
            if row is None or self._outcome(row) in (*OVER, DAMAGED):
                raise LibraryError(f"the run {quote(run)} is over")
            connection.execute(
                "INSERT INTO requests SELECT ?, coalesce(max(number), 0) + 1, ?, ? FROM requests WHERE run = ?",
                (run, word, factor, run),
            )

    def requests(self, run: str, after: int) -> list[tuple[int, Any, Any]]:
        """Return number, word and factor of what was asked of a run after the request of this number."""
        with self._said():
            query = "SELECT number, word, factor FROM requests WHERE run = ? AND number > ? ORDER BY number"
            return [tuple(row) for row in self._connection.execute(query, (run, after))]

    def delete(self, runs: Iterable[str]) -> None:
        """Take runs out of the list. `restore` brings them back until `purge`. LibraryError for a run that is being
        written."""
        with self._said(), self.transaction() as connection:
            for run in runs:
                row = connection.execute("SELECT * FROM runs WHERE id = ?", (run,)).fetchone()
                if row is not None and self._outcome(row) not in (*OVER, DAMAGED):
                    _check_ended(connection, run, row["process"])
                with sealed(connection, run):
                    connection.execute("UPDATE runs SET deleted = ? WHERE id = ?", (time.time(), run))

    def restore(self, runs: Iterable[str]) -> None:
        """Put deleted runs back into the list."""
        with self._said(), self.transaction() as connection:
            for run in runs:
                with sealed(connection, run):
                    connection.execute("UPDATE runs SET deleted = NULL WHERE id = ?", (run,))

    def purge(self, *, older_than: float = 0.0, runs: Iterable[str] | None = None) -> int:
        """Remove runs for good that were deleted so many seconds ago, or only these of them, and free their space. A
        run that is being written stays. Return how many were removed."""
        before = time.time() - older_than
        with self._said():
            with self.transaction() as connection:
                staying = _deleted_and_written(connection)
                remove = f"DELETE FROM runs WHERE deleted <= ? AND CAST(id AS BLOB) NOT IN ({_marks(staying)})"
                if runs is None:
                    gone = connection.execute(remove, (before, *staying)).rowcount
                else:
                    runs = list(runs)
                    gone = sum(
                        connection.execute(f"{remove} AND id = ?", (before, *staying, run)).rowcount for run in runs
                    )
                    gone += sum(_purge_lost(connection, run) for run in runs)
            if gone:
                with self.transaction() as connection:  # each call gives one page back
                    for _ in range(connection.execute("PRAGMA freelist_count").fetchone()[0]):
                        connection.execute("PRAGMA incremental_vacuum")
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return gone

    def check(self) -> str:
        """Return what the database's own check finds: "ok", or what is wrong."""
        with self._said():
            return "; ".join(row[0] for row in self._connection.execute("PRAGMA integrity_check(5)"))

    # ---- inside

    def _opened(self, connection: sqlite3.Connection, file: Identity | None = None) -> None:
        """Prepare a connection that was just opened. `file`: what was there before; None where it was made now."""
        file = file or identity(self.path)
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA schema_version").fetchall()  # SQLite makes its log with the first reading
        self._connection, self._open = connection, OpenFile(self.path, file)

    def _salvaged(self, file: Identity | None) -> sqlite3.Connection:
        """Return a new library in place of this damaged file. LibraryError where that fails."""
        with self._said():
            self.notice, connection = salvage.set_aside(self.path, file)
            return connection

    def _entry(
        self, row: sqlite3.Row, crc: int | None, *, watched: bool, findings: tuple[tuple[str, str], ...]
    ) -> Entry:
        """Return a line of the list; one that cannot be read, or is not what was written, is "damaged"."""
        try:
            if crc not in (None, of_half(dict(row), checksums.LIST)):
                raise ChecksumError("its line in the list is not what was written")
            tags = loads(row["tags"])
            entry = Entry(
                id=row["id"], title=row["title"], preset=row["preset_id"], outcome=self._outcome(row),
                started=row["started"], steps=row["steps"], final_loss=loads(row["final_loss"]),
                accuracy=loads(row["accuracy"]), seconds=row["seconds"], note=row["note"],
                tags=tuple(tags) if isinstance(tags, list) else tags, deleted=row["deleted"] is not None,
                parent=row["parent"], parent_step=row["parent_step"], watched=watched, findings=findings,
            )  # fmt: skip
            if 0 <= conforming(entry).started <= _LATEST and 0 <= entry.steps <= MOST_STEPS:
                return _within_limits(entry)
        except DAMAGE:
            pass
        return _damaged(row["id"], row["title"], row["started"], row["steps"], row["deleted"] is not None)

    def _ancestors(self, row: sqlite3.Row) -> dict[str, int]:
        """Return every run that a run has rows of, the oldest first, and up to which step, as far as the library knows
        them."""
        line: dict[str, int] = {}
        own, step = row["id"], row["steps"]
        while row is not None and row["parent"] and row["parent"] not in (own, *line):
            parent, step = row["parent"], min(step, row["parent_step"] or 0)
            line[parent] = step
            row = self._connection.execute("SELECT parent, parent_step FROM runs WHERE id = ?", (parent,)).fetchone()
        return dict(reversed(line.items()))

    @contextmanager
    def _at_one_moment(self) -> Iterator[None]:
        """Read everything within as it is now, whatever another program writes meanwhile."""
        self._connection.execute("BEGIN")
        try:
            yield
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def _outcome(self, row: sqlite3.Row) -> Any:
        """Return the status of a run; "interrupted" where nobody writes it any more though it is not over."""
        if not (isinstance(row["status"], str) and isinstance(row["process"], str)):
            return DAMAGED
        return row["status"] if row["status"] in OVER or interrupted_runs.lives(row["process"]) else "interrupted"

    @contextmanager
    def _said(self) -> Iterator[None]:
        """Turn a fault of the database or its disk into a LibraryError."""
        try:
            yield
        except (sqlite3.Error, OSError, UnicodeError) as fault:
            raise LibraryError(f"the run library {self.path}: {fault}") from None


def _deleted_and_written(connection: sqlite3.Connection) -> list[bytes]:
    """Return the ids of deleted runs that some program writes. They are read as bytes: a damaged text is none."""
    found = connection.execute(
        "SELECT CAST(id AS BLOB), CAST(process AS BLOB) FROM runs WHERE deleted IS NOT NULL "
        f"AND status NOT IN ({_marks(OVER)})",
        tuple(OVER),
    ).fetchall()
    return [run for run, process in found if _is_written(connection, *(_text(value) for value in (run, process)))]


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _check_ended(connection: sqlite3.Connection, run: str, process: str) -> None:
    """Raise LibraryError where a process may still write a run that is not over."""
    if not _is_written(connection, run, process):
        return
    if host := interrupted_runs.other_host(process):
        raise LibraryError(
            f"{run} was not ended by its program on the machine {quote(host)}, which cannot be looked at from here. "
            "If that program is gone, open the run, press Stop, and delete it then"
        )
    raise LibraryError(f"{run} is still running; stop it first")


def _is_written(connection: sqlite3.Connection, run: str, process: str) -> bool:
    """Return whether a process may still write a run that is not over. One on another host cannot be asked, but one
    that lives ends the run when it is told to stop."""
    if interrupted_runs.other_host(process):
        query = "SELECT count(*) FROM requests WHERE run = ? AND word = 'stop'"
        return not connection.execute(query, (run,)).fetchone()[0]
    return interrupted_runs.lives(process)


def _marks(values: Sized) -> str:
    """Return a question mark for each value, for a list in SQL."""
    return ", ".join("?" * len(values))


def _purge_lost(connection: sqlite3.Connection, run: str) -> bool:
    """Remove what is left of a run whose line is lost, and return whether there was something."""
    lost = run in [found[0] for found in connection.execute(_LOST)]
    if lost:
        for table in ("rows", "rank_rows", "entries", "snapshots", "checksums"):
            connection.execute(f"DELETE FROM {table} WHERE run = ?", (run,))
    return lost


def is_there(path: Path) -> bool:
    """Return whether there is a library; LibraryError where nobody can tell."""
    if why := files.why_not_seen(path):
        raise LibraryError(f"the run library cannot be opened: {why}")
    return os.path.exists(path)


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


def _add_rows(history: History, chunks: Sequence[sqlite3.Row]) -> None:
    """Add the rows, up to the first gap; the first piece may begin with some that are there. PackingError where they
    are not those of a run."""
    shared, packed, unpacked = len(history), 0, 0
    if len(history.layers) > MOST_LAYERS:
        raise PackingError(f"it has {len(history.layers):,} layers; allowed: at most {MOST_LAYERS:,}")
    for start, count, columns, measured in chunks:
        there = len(history) - start
        if there != 0 and not (len(history) == shared > start >= 0):
            break
        if not 0 < count <= BLOCK:
            raise PackingError(f"a piece of {count:,} rows; allowed: 1 to {BLOCK:,}")
        packed += len(columns) + len(measured)
        unpacked += count * (8 * len(COLUMNS) + 4 * len(LAYER_METRICS) * len(history.layers))
        if unpacked > PLENTY and unpacked > DENSEST * packed:
            raise PackingError(f"{packed:,} bytes of it unpack to {unpacked:,}, which no run does")
        rows = _columns(columns, count)
        of_layers = unpack(measured, (count, len(LAYER_METRICS), len(history.layers)), np.float32)
        history.extend(rows[there:], of_layers.transpose(1, 0, 2)[:, there:])


def _add_ranks(history: History, chunks: Sequence[sqlite3.Row]) -> None:
    """Add what each rank measured, up to the first gap and no further than the rows, whose size is checked.
    PackingError where that is not of the ranks of a run."""
    for start, count, ranks, figures in chunks:
        if start != len(history.ranks) or start >= len(history):
            break
        if not (0 < count <= BLOCK and ranks in SEVERAL):
            raise PackingError(f"a piece of {count:,} rows of {ranks:,} ranks")
        if ranks != (history.ranks.ranks or ranks):
            raise PackingError(f"a piece of {ranks:,} ranks behind one of {history.ranks.ranks:,}")
        history.ranks.extend(unpack(figures, (count, ranks, len(RANK_COLUMNS)), np.float32))


def _damaged(run: Any, title: Any = "", started: Any = 0.0, steps: Any = 0, deleted: bool = False) -> Entry:
    """Return the entry of a run that cannot be read, with what can be shown of these values."""
    entry = Entry(
        id=run if isinstance(run, str) else repr(run), title=title if isinstance(title, str) else "", preset="",
        outcome=DAMAGED, started=started if isinstance(started, float) and 0 <= started <= _LATEST else 0.0,
        steps=steps if isinstance(steps, int) and 0 <= steps <= MOST_STEPS else 0, final_loss=None, accuracy=None,
        seconds=0.0, note="", tags=(), deleted=deleted,
    )  # fmt: skip
    return _within_limits(entry)


def _within_limits(entry: Entry) -> Entry:
    """Return the entry with its texts cut to what a person may write."""
    return replace(
        entry, title=shorten(entry.title, LONGEST_TITLE), note=entry.note[:LONGEST_NOTE],
        tags=tuple(tag[:LONGEST_TAG] for tag in entry.tags[:MOST_TAGS]),
    )  # fmt: skip


def _columns(data: bytes, count: int) -> np.ndarray:
    """Return the columns of so many rows; those of an older version have fewer columns."""
    try:
        return unpack(data, (count, len(COLUMNS)), np.float64)
    except PackingError:
        for columns in OLDER:
            with suppress(PackingError):
                return unpack(data, (count, columns), np.float64)
        raise


def searched(entry: Entry) -> str:
    """Return the text in which the words of a search are looked for."""
    word = "diverged" if entry.outcome == "nonfinite" else ""  # as the list shows it
    return re.sub(
        r"\s+", " ", " ".join((entry.title, entry.preset, entry.id, entry.outcome, word, entry.note, *entry.tags))
    ).casefold()

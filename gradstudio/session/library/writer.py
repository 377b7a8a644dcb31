"""The thread that writes runs into the library as they train. Training never waits for it: it only reads runs."""

from __future__ import annotations

import _thread
import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gradstudio.core.history import BLOCK, COLUMNS, LAYER_METRICS, History
from gradstudio.core.text import first_line
from gradstudio.session.library import checksums, interrupted_runs, stored_snapshots
from gradstudio.session.library.library_faults import LibraryError, NoLibraryError, is_damage, is_lock
from gradstudio.session.library.open_files import other_name
from gradstudio.session.library.packing import pack
from gradstudio.session.library.requests import Hearing, Request
from gradstudio.session.library.run_values import GROWING, WHOLE, changing, dumps, fixed
from gradstudio.session.library.store import Library
from gradstudio.session.record.run import Run
from gradstudio.session.record.snapshots import Snapshots

INTERVAL = 0.5  # seconds between two writings: as much can be lost in a power cut
LONGEST_REASON = 150  # characters of a fault in a notice
PIECE = 128  # rows; a shorter piece is written again together with the next rows, as many short ones take more room


class LibraryWriter:
    """Follows runs until they are over. `problem` says why the latest writing failed. It is tried again; something is
    lost only if the program ends before it succeeds. `notice` says what became of a damaged library, or of snapshots
    that cannot be kept."""

    def __init__(self, path: Path, in_sight: bool = True, interval: float | None = None) -> None:
        """`in_sight`: whether `threading.enumerate` tells of the thread. A script that joins all threads would wait for
        this one without an end. `interval`: seconds between two writings, INTERVAL if not given."""
        self._interval = interval
        self.path = path.absolute()  # where runs are written; another file once what is here is no library any more
        self.problem = ""
        self.notice = ""
        self._library: Library | None = None
        self._known = False  # whether it was opened before
        self._following: list[_Followed] = []
        self._wake = threading.Event()
        self._ending = False
        self._ended_well = False
        self._locked = False  # whether another program held the library at the latest attempt
        self._give_up = 0.0  # when the last writing ends, where that has been asked for
        self._lock = threading.Lock()
        self._ended = threading.Event()
        if in_sight:
            threading.Thread(target=self._run, name="run library", daemon=True).start()
        else:
            _thread.start_new_thread(self._run, ())

    def follow(
        self,
        run: Run,
        snapshots: Snapshots | None = None,
        hear: Callable[[Request], object] | None = None,
        gather: Callable[[], object] | None = None,
    ) -> None:
        """Write this run from now on, and some of its snapshots once it is over. Two functions are called in the thread
        of this writer: `hear` with what other programs ask of the run, and `gather` before it is looked at, to add rows
        that wait. Any thread may call this."""
        with self._lock:  # a run that goes on after it was over is written anew
            self._following = [
                *(followed for followed in self._following if followed.run is not run),
                _Followed(run, snapshots, hear, gather),
            ]
        self._wake.set()

    def follows(self, run: str) -> bool:
        """Return whether a run of this id is not written to its end yet."""
        with self._lock:
            return any(followed.run.id == run for followed in self._following)

    def close(self, timeout: float | None = None) -> bool:
        """Write what is left of all runs, and end. While another program holds the library it is tried again, until
        the time is over. Return whether all is written."""
        self._give_up = time.monotonic() + (timeout or 0.0)
        self._ending = True
        self._wake.set()
        self._ended.wait(timeout)
        return self._ended_well

    def _run(self) -> None:
        try:
            self._write_until_the_end()
        finally:
            self._ended.set()

    def _write_until_the_end(self) -> None:
        """Write again and again, until `close`."""
        while True:
            ending = self._ending
            with self._lock:
                following = list(self._following)
            once_more = self._attempt(following) and self._attempt(following)
            if ending and not (self._locked and time.monotonic() < self._give_up):
                break
            self._wake.wait((self._interval or INTERVAL) if following or once_more else None)
            self._wake.clear()
        if self._library is not None:
            with contextlib.suppress(sqlite3.Error):
                self._library.close()
        self._ended_well = not self.problem

    def _attempt(self, following: list[_Followed]) -> bool:
        """Write what is new of each run. Return whether to try again at once, as a damaged library was set aside."""
        problem, self._locked = "", False
        for followed in following:
            try:
                self._write(followed, following)
            except Exception as fault:  # of one run; the others are written all the same
                known = isinstance(fault, LibraryError)
                problem = str(fault) if known else f"the run library {self.path} cannot be written: {fault}"
                self._locked |= is_lock(fault)
                if is_damage(fault) and self._library is not None:
                    self.problem = problem
                    return self._set_aside(self._library, following)
        self.problem = problem
        return False

    def _write(self, followed: _Followed, following: list[_Followed]) -> None:
        """Write what is new of one run, and follow it no more once it is over."""
        library = self._library
        if library is not None and library.replaced:
            self._leave(library, following)
            library = None
        if library is None:
            library = self._library = self._opened()
            self.notice = library.notice or self.notice
        followed.gather()
        over = followed.run.over  # asked before writing, so that the end of the run is written too
        try:
            written = followed.write(library, over)
        except sqlite3.IntegrityError:  # somebody removed the run from the library
            followed.forget()
            written = followed.write(library, over)
        if written:
            library.finish_log()
        self.notice = self.notice or followed.notice  # damage matters more
        followed.listen(library)
        if over:
            with self._lock:  # it is gone already where it is written again, into the library after a damaged one
                if followed in self._following:
                    self._following.remove(followed)

    def _opened(self) -> Library:
        """Open the library. Where somebody has put something else in its place since it was opened, go on beside
        it."""
        try:
            library = Library(self.path)
        except NoLibraryError as fault:
            if not self._known:
                raise
            instead = Path(other_name(self.path, "instead"))
            library, self.path = Library(instead), instead
            self.notice = f"The run library was replaced: {fault}. Runs are written into {instead}"
        self._known = True
        return library

    def _set_aside(self, library: Library, following: list[_Followed]) -> bool:
        """Go on with a new library in place of a damaged one. Return whether there is one."""
        try:
            library.set_aside()
        except Exception:
            self._leave(library, following)
            return False
        self.notice = library.notice or self.notice
        for each in following:
            each.forget()
        return True

    def _leave(self, library: Library, following: list[_Followed]) -> None:
        """Close a library that cannot be used any more. The next one gets every run from its beginning."""
        with contextlib.suppress(sqlite3.Error):
            library.close()
        self._library = None
        for each in following:
            each.forget()


class _Written(NamedTuple):
    """What is known to be in the library of a run."""

    history: History | None = None
    rows: int = 0
    piece: int = 0  # first row of the piece that is written again with the next rows
    columns: Mapping[str, Any] = {}
    lists: Mapping[str, tuple[int, int]] = dict.fromkeys(GROWING, (0, 0))  # length and checksum of each growing list
    whole: Mapping[str, list[str]] = {}


class _Grown(NamedTuple):
    """The entries of a growing list that are to be written, from number `start` on; length and checksum of all."""

    start: int
    entries: list[str]
    length: int
    checksum: int


class _Followed:
    """A run, and how much of it is written."""

    def __init__(
        self,
        run: Run,
        snapshots: Snapshots | None,
        hear: Callable[[Request], object] | None,
        gather: Callable[[], object] | None,
    ) -> None:
        self.run, self._snapshots = run, snapshots
        self._hear, self._gather = hear, gather
        self._fixed = fixed(run) | {"process": interrupted_runs.this()}
        self._id = self._fixed["id"]
        self._written = _Written()
        self._hearing = Hearing(self._id)
        self.notice = ""  # why its snapshots are not kept

    def gather(self) -> None:
        """Let rows that wait be added to the run."""
        if self._gather is not None:
            self._gather()

    def listen(self, library: Library) -> None:
        """Pass on what other programs have asked of the run since it was put into the library."""
        if self._hear is not None and self._written.columns:
            for request in self._hearing.news(library):
                self._hear(request)

    def forget(self) -> None:
        """Take it that nothing of the run is written, and nothing asked of it."""
        self._written, self._hearing = _Written(), Hearing(self._id)

    def write(self, library: Library, over: bool) -> bool:
        """Write everything that is new, in one transaction. Return whether there was anything."""
        run, history = self.run, self.run.history
        rows, before = len(history), self._written
        if (not rows and (run.refused or run.status in ("ready", "starting"))) or (run.parent and not run.own):
            return False  # it may never begin
        grown = {
            kind: _grown(list(entries(run)), encode, *before.lists[kind]) for kind, (entries, encode) in GROWING.items()
        }
        now = before._replace(
            rows=rows,
            columns=changing(run, history, rows),
            lists={kind: (each.length, each.checksum) for kind, each in grown.items()},
            whole={kind: [dumps(entry) for entry in entries(run)] for kind, entries in WHOLE.items()},
        )
        if now == before:
            return False
        states = self._states() if over else None
        with library.transaction() as connection:
            self._write_columns(connection, now.columns)
            for kind, each in grown.items():
                if each.length != before.lists[kind][0]:
                    _enter(connection, self._id, kind, each.start, each.entries, each.checksum)
            self._write_whole(connection, now.whole)
            piece = self._write_rows(connection, history, rows)
            if states is not None:
                stored_snapshots.write(connection, self._id, states)
        self._written = now._replace(history=history, piece=piece)
        return True

    def _states(self) -> list[tuple[int, bytes]] | None:
        """Return the snapshots to write once the run is over. None where they cannot be read, as after a fault of the
        GPU: the end of the run is written all the same."""
        try:
            return stored_snapshots.packed(self.run, self._snapshots) if self._snapshots else []
        except Exception as fault:
            why = first_line(fault, LONGEST_REASON) or type(fault).__name__
            self.notice = f"No snapshots of “{self.run.title}” are kept, so a rewind makes its steps again: {why}"
            return None

    def _write_columns(self, connection: sqlite3.Connection, columns: Mapping[str, Any]) -> None:
        """Write the run's line in the table `runs`."""
        if columns == self._written.columns:
            return
        with checksums.sealed(connection, self._id):
            if not self._written.columns:
                _put(connection, {**self._fixed, **columns})
            else:
                _change(connection, self._id, self._written.columns, columns)

    def _write_whole(self, connection: sqlite3.Connection, whole: Mapping[str, list[str]]) -> None:
        """Write the lists whose entries may have changed."""
        for kind, entries in whole.items():
            if entries != self._written.whole.get(kind, []):
                _enter(connection, self._id, kind, 0, entries, checksums.of_values(entries))

    def _write_rows(self, connection: sqlite3.Connection, history: History, rows: int) -> int:
        """Write the rows that are new. Return where the piece begins that is written again with the next rows."""
        before = self._written
        written, piece = (before.rows, before.piece) if history is before.history else (0, 0)
        if rows > written:
            connection.execute("DELETE FROM rows WHERE run = ? AND start >= ?", (self._id, piece))
            connection.execute("DELETE FROM rank_rows WHERE run = ? AND start >= ?", (self._id, piece))
            connection.execute(
                "DELETE FROM checksums WHERE run = ? AND part IN (?, ?) AND number >= ?",
                (self._id, checksums.ROWS, checksums.RANKS, piece),
            )
            for start in range(piece, rows, BLOCK):
                piece, stop = start, min(start + BLOCK, rows)
                content = (start, stop - start, *_packed(history, start, stop))
                connection.execute("INSERT INTO rows VALUES (?, ?, ?, ?, ?)", (self._id, *content))
                checksums.put(connection, self._id, checksums.ROWS, start, checksums.of_values(content))
                self._write_rank_rows(connection, history, start, stop)
        return piece if rows - piece < PIECE else rows

    def _write_rank_rows(self, connection: sqlite3.Connection, history: History, start: int, stop: int) -> None:
        """Write what each rank measured in rows start to stop, where there are ranks."""
        figures = history.ranks.rows(start, stop)
        if len(figures):
            content = (start, len(figures), figures.shape[1], pack(figures))
            connection.execute("INSERT INTO rank_rows VALUES (?, ?, ?, ?, ?)", (self._id, *content))
            checksums.put(connection, self._id, checksums.RANKS, start, checksums.of_values(content))


def _grown(entries: list[Any], encode: Callable[[Any], list[Any]], length: int, checksum: int) -> _Grown:
    """Return what is new of a list that had this length and checksum; of one that has become shorter, everything."""
    start, checksum = (length, checksum) if len(entries) >= length else (0, 0)
    new = [dumps(encode(entry)) for entry in entries[start:]]
    return _Grown(start, new, len(entries), checksums.of_values(new, checksum))


def _packed(history: History, start: int, stop: int) -> tuple[bytes, bytes]:
    """Return the columns and the layers of rows start to stop, as bytes."""
    columns = np.stack([history.column(name, start, stop) for name in COLUMNS], 1)
    layers = np.stack([history.layer_metric(name, start, stop) for name in LAYER_METRICS], 1)
    return pack(columns), pack(layers)


def _enter(connection: sqlite3.Connection, run: str, kind: str, start: int, entries: list[str], checksum: int) -> None:
    """Write entries of a list from a number on in place of those that are there, and the checksum of the whole
    list."""
    connection.execute("DELETE FROM entries WHERE run = ? AND kind = ? AND number >= ?", (run, kind, start))
    lines = [(run, kind, number, entry) for number, entry in enumerate(entries, start)]
    connection.executemany("INSERT INTO entries VALUES (?, ?, ?, ?)", lines)
    checksums.put(connection, run, kind, 0, checksum)


def _put(connection: sqlite3.Connection, columns: Mapping[str, Any]) -> None:
    """Write the whole line of a run, and remove what was asked of it at another time. A deleted run that goes on is in
    the list again."""
    names = list(columns)
    updates = ", ".join([*(f"{name} = excluded.{name}" for name in names if name != "id"), "deleted = NULL"])
    connection.execute(
        f"INSERT INTO runs ({', '.join(names)}) VALUES ({', '.join('?' * len(names))}) ON CONFLICT (id) DO UPDATE "
        f"SET {updates}",
        [columns[name] for name in names],
    )
    connection.execute("DELETE FROM requests WHERE run = ?", (columns["id"],))


def _change(connection: sqlite3.Connection, run: str, before: Mapping[str, Any], columns: Mapping[str, Any]) -> None:
    """Write the columns that have changed. A title that somebody has given the run meanwhile stays. A run that was
    taken for interrupted, was deleted and has made another step is in the list again. sqlite3.IntegrityError where the
    run is not in the library any more."""
    new = {name: value for name, value in columns.items() if value != before[name]}
    if title := new.pop("title", None):
        connection.execute("UPDATE runs SET title = ? WHERE id = ? AND title = ?", (title, run, before["title"]))
    if "steps" in new:
        new["deleted"] = None
    if new:
        changed = connection.execute(
            f"UPDATE runs SET {', '.join(f'{name} = ?' for name in new)} WHERE id = ?", [*new.values(), run]
        )
        if not changed.rowcount:
            raise sqlite3.IntegrityError(f"the run {run} is not in the library")

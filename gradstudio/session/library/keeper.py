"""The thread that writes runs into the library as they go. Training never waits for it: it reads what any thread may read of a run."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from pathlib import Path
from typing import Any

import numpy as np

from gradstudio.core.history import BLOCK, COLUMNS, LAYER_METRICS, History
from gradstudio.session.library import process, stored
from gradstudio.session.library.packing import pack
from gradstudio.session.library.record import GROWING, WHOLE, changing, dumps, fixed
from gradstudio.session.library.store import Library, LibraryError, is_damage
from gradstudio.session.run import Run
from gradstudio.session.snapshots import Snapshots

INTERVAL = 0.5  # seconds between two writings: what a power cut can take
PIECE = 128  # rows; a shorter one is written again with the next: many of them would take more room


class Keeper:
    """Follows runs until they are over. `problem` says why the latest writing failed; it is tried again, and nothing is lost
    meanwhile but by the end of the program."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.problem = ""
        self.notice = ""
        self._library: Library | None = None
        self._following: list[_Followed] = []
        self._wake = threading.Event()
        self._ending = False
        self._ended_well = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="run library", daemon=True)
        self._thread.start()

    def follow(self, run: Run, snapshots: Snapshots | None = None) -> None:
        """Write this run from now on, and some of its snapshots once it is over; any thread may say so."""
        with self._lock:  # one that goes on after it was over is written anew
            self._following = [*(followed for followed in self._following if followed.run is not run), _Followed(run, snapshots)]
        self._wake.set()

    def close(self, timeout: float | None = None) -> bool:
        """Write what is left of all runs, and end. Gives whether all is written."""
        self._ending = True
        self._wake.set()
        self._thread.join(timeout)
        return self._ended_well

    def _run(self) -> None:
        while True:
            ending = self._ending
            with self._lock:
                following = list(self._following)
            once_more = self._attempt(following) and self._attempt(following)
            if ending:
                break
            self._wake.wait(INTERVAL if following or once_more else None)
            self._wake.clear()
        if self._library is not None:
            with contextlib.suppress(sqlite3.Error):
                self._library.close()
        self._ended_well = not self.problem

    def _attempt(self, following: list[_Followed]) -> bool:
        """Write what is new of each run. Gives whether it is worth another attempt at once: a damaged library was set aside."""
        problem = ""
        for followed in following:
            try:
                self._write(followed, following)
            except Exception as fault:  # of one run; the others are written all the same
                problem = str(fault) if isinstance(fault, LibraryError) else f"the run library {self.path} cannot be written: {fault}"
                if is_damage(fault) and self._library is not None:
                    self.problem = problem
                    return self._set_aside(following)
        self.problem = problem
        return False

    def _write(self, followed: _Followed, following: list[_Followed]) -> None:
        if self._library is not None and self._library.replaced:
            self._leave(following)
        if self._library is None:
            self._library = Library(self.path)
            self.notice = self._library.notice or self.notice
        over = followed.run.over  # before it is written, so that its end is written too
        followed.write(self._library, over)
        if over:
            with self._lock:
                if followed in self._following:  # not where it is written a second time, into the library after a damaged one
                    self._following.remove(followed)

    def _set_aside(self, following: list[_Followed]) -> bool:
        library = self._library
        try:
            library.set_aside()
        except Exception:
            self._leave(following)
            return False
        self.notice = library.notice or self.notice
        for each in following:
            each.forget()
        return True

    def _leave(self, following: list[_Followed]) -> None:
        """This file is of no use any more: the next one gets all that is followed from its beginning."""
        with contextlib.suppress(sqlite3.Error):
            self._library.close()
        self._library = None
        for each in following:
            each.forget()


class _Followed:
    """A run and how much of it is written."""

    def __init__(self, run: Run, snapshots: Snapshots | None) -> None:
        self.run, self._snapshots = run, snapshots
        self._fixed = fixed(run) | {"process": process.this()}
        self._id = self._fixed["id"]
        self.forget()

    def forget(self) -> None:
        """Nothing of it is written, as far as is known."""
        self._history: History | None = None
        self._rows = self._piece = 0  # how many, and where the piece begins that is written again with the next
        self._columns: dict[str, Any] = {}
        self._lengths = dict.fromkeys(GROWING, 0)
        self._whole: dict[str, list[str]] = {}

    def write(self, library: Library, over: bool) -> None:
        """Everything that is new, in one transaction."""
        run, history = self.run, self.run.history
        rows = len(history)
        if (not rows and (run.refused or run.status in ("ready", "starting"))) or (run.parent and not run.own):
            return  # it may never begin
        written, piece = (self._rows, self._piece) if history is self._history else (0, 0)
        columns, whole = changing(run, history, rows), {kind: [dumps(entry) for entry in entries(run)] for kind, entries in WHOLE.items()}
        lists = {kind: (list(entries(run)), encode) for kind, (entries, encode) in GROWING.items()}
        lengths = {kind: len(entries) for kind, (entries, _) in lists.items()}
        if (columns, whole, lengths, rows) == (self._columns, self._whole, self._lengths, self._rows):
            return
        states = stored.packed(run, self._snapshots) if over and self._snapshots else []
        with library.transaction() as connection:
            if not self._columns:
                _put(connection, self._fixed | columns)
            elif columns != self._columns:
                _change(connection, self._id, self._columns, columns)
            for kind, (entries, encode) in lists.items():
                start = self._lengths[kind]
                _enter(connection, self._id, kind, start, [dumps(encode(entry)) for entry in entries[start:]])
            for kind, entries in whole.items():
                if entries != self._whole.get(kind, []):
                    connection.execute("DELETE FROM entries WHERE run = ? AND kind = ?", (self._id, kind))
                    _enter(connection, self._id, kind, 0, entries)
            if rows > written:
                connection.execute("DELETE FROM rows WHERE run = ? AND start >= ?", (self._id, piece))
                for start in range(piece, rows, BLOCK):
                    piece, stop = start, min(start + BLOCK, rows)
                    connection.execute("INSERT INTO rows VALUES (?, ?, ?, ?, ?)", (self._id, start, stop - start, *_packed(history, start, stop)))
            if over:
                stored.write(connection, self._id, states)
        self._history, self._rows, self._columns, self._lengths, self._whole = history, rows, columns, lengths, whole
        self._piece = piece if rows - piece < PIECE else rows


def _packed(history: History, start: int, stop: int) -> tuple[bytes, bytes]:
    columns = np.stack([history.column(name, start, stop) for name in COLUMNS], 1)
    layers = np.stack([history.layer_metric(name, start, stop) for name in LAYER_METRICS], 1)
    return pack(columns), pack(layers)


def _enter(connection: sqlite3.Connection, run: str, kind: str, start: int, entries: list[str]) -> None:
    lines = [(run, kind, number, entry) for number, entry in enumerate(entries, start)]
    connection.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)", lines)


def _put(connection: sqlite3.Connection, columns: dict[str, Any]) -> None:
    names = list(columns)
    updates = ", ".join(f"{name} = excluded.{name}" for name in names if name != "id")
    connection.execute(
        f"INSERT INTO runs ({', '.join(names)}) VALUES ({', '.join('?' * len(names))}) ON CONFLICT (id) DO UPDATE SET {updates}",
        [columns[name] for name in names],
    )


def _change(connection: sqlite3.Connection, run: str, before: dict[str, Any], columns: dict[str, Any]) -> None:
    """Write what is new; a title that somebody has given the run meanwhile stays."""
    new = {name: value for name, value in columns.items() if value != before[name]}
    if title := new.pop("title", None):
        connection.execute("UPDATE runs SET title = ? WHERE id = ? AND title = ?", (title, run, before["title"]))
    if new:
        connection.execute(f"UPDATE runs SET {', '.join(f'{name} = ?' for name in new)} WHERE id = ?", [*new.values(), run])

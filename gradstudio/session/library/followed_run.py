"""Writes the new parts of one run to the library in one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from gradstudio.core.history import BLOCK, LAYER_METRICS, History
from gradstudio.core.text import first_line
from gradstudio.session.library import checksums, interrupted_runs, stored_snapshots
from gradstudio.session.library.packing import pack
from gradstudio.session.library.requests import Request, RequestReader
from gradstudio.session.library.run_values import GROWING, WHOLE, changing_columns, dumps, fixed_columns
from gradstudio.session.library.store import Library
from gradstudio.session.record.run import Run
from gradstudio.session.record.snapshots import RemoteSnapshots, Snapshots

LONGEST_REASON = 150  # characters of a fault in a notice
PIECE = 128  # rows; a shorter chunk is rewritten together with the next rows, as many short ones take more room


class _WrittenParts(NamedTuple):
    """The parts of a run that are known to be in the library."""

    history: History | None = None
    rows: int = 0
    piece: int = 0  # first row of the chunk that is rewritten with the next rows
    columns: Mapping[str, Any] = {}
    lists: Mapping[str, tuple[int, int]] = dict.fromkeys(GROWING, (0, 0))  # length and checksum of each growing list
    whole: Mapping[str, list[str]] = {}


class _Grown(NamedTuple):
    """The entries of a growing list that are to be written, from number `start` on; length and checksum of all."""

    start: int
    entries: list[str]
    length: int
    checksum: int


class FollowedRun:
    """A run that is written as it trains, and how much of it is written."""

    def __init__(
        self,
        run: Run,
        snapshots: Snapshots | RemoteSnapshots | None,
        on_request: Callable[[Request], object] | None,
        gather: Callable[[], object] | None,
    ) -> None:
        self.run, self._snapshots = run, snapshots
        self._on_request, self._gather = on_request, gather
        self._fixed = fixed_columns(run) | {"process": interrupted_runs.this_process()}
        self._id = self._fixed["id"]
        self._written = _WrittenParts()
        self._hearing = RequestReader(self._id)
        self.notice = ""  # why its snapshots are not stored

    def gather(self) -> None:
        """Add pending rows to the run."""
        if self._gather is not None:
            self._gather()

    def listen(self, library: Library) -> None:
        """Pass on the requests of other programs since the run was added to the library."""
        if self._on_request is not None and self._written.columns:
            for request in self._hearing.news(library):
                self._on_request(request)

    def forget(self) -> None:
        """Assume that nothing of the run is written, and nothing requested of it."""
        self._written, self._hearing = _WrittenParts(), RequestReader(self._id)

    def write(self, library: Library, over: bool) -> bool:
        """Write everything new, in one transaction. Return whether there was anything."""
        run, history = self.run, self.run.history
        rows, before = len(history), self._written
        if (not rows and (run.never_began or run.status == "starting")) or (run.parent and not run.own):
            return False  # it may never begin
        grown = {
            kind: _grown(list(entries(run)), encode, *before.lists[kind]) for kind, (entries, encode) in GROWING.items()
        }
        now = before._replace(
            rows=rows,
            columns=changing_columns(run, history, rows),
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
        """Return the snapshots to write once the run is over. None if they cannot be read, for example after a GPU
        fault: the end of the run is written all the same."""
        try:
            return stored_snapshots.pack(self.run, self._snapshots) if self._snapshots else []
        except Exception as fault:
            why = first_line(fault, LONGEST_REASON) or type(fault).__name__
            self.notice = f"No snapshots of “{self.run.title}” are kept, so a rewind makes its steps again: {why}"
            return None

    def _write_columns(self, connection: sqlite3.Connection, columns: Mapping[str, Any]) -> None:
        """Write the run's row in the table `runs`."""
        if columns == self._written.columns:
            return
        with checksums.updating(connection, self._id):
            if not self._written.columns:
                put_run(connection, {**self._fixed, **columns})
            else:
                change_run(connection, self._id, self._written.columns, columns)

    def _write_whole(self, connection: sqlite3.Connection, whole: Mapping[str, list[str]]) -> None:
        """Write the lists whose entries may have changed."""
        for kind, entries in whole.items():
            if entries != self._written.whole.get(kind, []):
                _enter(connection, self._id, kind, 0, entries, checksums.of_values(entries))

    def _write_rows(self, connection: sqlite3.Connection, history: History, rows: int) -> int:
        """Write the new rows. Return the start of the chunk that is rewritten with the next rows."""
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
                content = (start, stop - start, *pack_rows(history, start, stop))
                connection.execute("INSERT INTO rows VALUES (?, ?, ?, ?, ?)", (self._id, *content))
                checksums.write(connection, self._id, checksums.ROWS, start, checksums.of_values(content))
                self._write_rank_rows(connection, history, start, stop)
        return piece if rows - piece < PIECE else rows

    def _write_rank_rows(self, connection: sqlite3.Connection, history: History, start: int, stop: int) -> None:
        """Write the ranks' measurements of rows start to stop, if there are ranks."""
        figures = history.ranks.rows(start, stop)
        if len(figures):
            content = (start, len(figures), figures.shape[1], pack(figures))
            connection.execute("INSERT INTO rank_rows VALUES (?, ?, ?, ?, ?)", (self._id, *content))
            checksums.write(connection, self._id, checksums.RANKS, start, checksums.of_values(content))


def _grown(entries: list[Any], encode: Callable[[Any], list[Any]], length: int, checksum: int) -> _Grown:
    """Return the new part of a list that had this length and checksum; everything, if it has become shorter."""
    start, checksum = (length, checksum) if len(entries) >= length else (0, 0)
    new = [dumps(encode(entry)) for entry in entries[start:]]
    return _Grown(start, new, len(entries), checksums.of_values(new, checksum))


def pack_rows(history: History, start: int, stop: int) -> tuple[bytes, bytes]:
    """Return the columns and the layers of rows start to stop, as bytes."""
    layers = np.stack([history.layer_metric(name, start, stop) for name in LAYER_METRICS], 1)
    return pack(history.table(start, stop)), pack(layers)


def _enter(connection: sqlite3.Connection, run: str, kind: str, start: int, entries: list[str], checksum: int) -> None:
    """Write entries of a list from a number on, replacing existing ones, and the checksum of the whole list."""
    connection.execute("DELETE FROM entries WHERE run = ? AND kind = ? AND number >= ?", (run, kind, start))
    lines = [(run, kind, number, entry) for number, entry in enumerate(entries, start)]
    connection.executemany("INSERT INTO entries VALUES (?, ?, ?, ?)", lines)
    checksums.write(connection, run, kind, 0, checksum)


def put_run(connection: sqlite3.Connection, columns: Mapping[str, Any]) -> None:
    """Write the whole row of a run, and remove earlier requests. A deleted run that continues is listed again."""
    names = list(columns)
    updates = ", ".join([*(f"{name} = excluded.{name}" for name in names if name != "id"), "deleted = NULL"])
    connection.execute(
        f"INSERT INTO runs ({', '.join(names)}) VALUES ({', '.join('?' * len(names))}) ON CONFLICT (id) DO UPDATE "
        f"SET {updates}",
        [columns[name] for name in names],
    )
    connection.execute("DELETE FROM requests WHERE run = ?", (columns["id"],))


def change_run(connection: sqlite3.Connection, run: str, before: Mapping[str, Any], columns: Mapping[str, Any]) -> None:
    """Write the columns that have changed. A title that the user has given the run meanwhile stays. A run that was
    considered interrupted, was deleted and has made another step is listed again. sqlite3.IntegrityError if the run is
    no longer in the library."""
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

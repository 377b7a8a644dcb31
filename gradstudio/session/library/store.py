"""The library of runs: it lists them, reads them back, and stores the user's titles, notes and deletions."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from gradstudio.core import files
from gradstudio.core.history import History
from gradstudio.core.knobs import quote
from gradstudio.core.text import LONGEST_TITLE, plural
from gradstudio.session.library import deletion, salvage, schema, stored_runs
from gradstudio.session.library.checksums import updating
from gradstudio.session.library.library_faults import (
    LibraryError,
    NoLibraryError,
    ReplacedError,
    is_damage,
    library_errors,
)
from gradstudio.session.library.open_files import Identity, OpenFile, identity, make_way
from gradstudio.session.library.run_entries import (
    DAMAGED,
    LONGEST_NOTE,
    LONGEST_TAG,
    LOST,
    MOST_TAGS,
    Entry,
    lines,
    missing_log,
    outcome_of,
    searchable_text,
)
from gradstudio.session.library.run_values import dumps
from gradstudio.session.record.run import OVER, Run


class Library:
    """A connection to the library's file; each thread has its own. Its methods raise LibraryError for anything that the
    file or its disk does not allow."""

    def __init__(self, path: Path, *, on_full_disk: bool = False) -> None:
        path = self.path = path.absolute()
        self.notice = ""  # message about a file that was damaged, and what was saved
        self.lacks = ""  # message about a copy without the log that SQLite kept beside the file
        without_log = not os.path.exists(f"{os.path.realpath(path)}-wal")
        make_way(path)
        file = identity(path)  # it may be replaced while it is opened
        try:
            connection = schema.connect(path, on_full_disk=on_full_disk)
        except sqlite3.OperationalError as fault:  # locked, or no folder to write to: the file may be fine
            raise LibraryError(f"the run library {path} cannot be opened: {fault}") from None
        except sqlite3.DatabaseError as fault:
            if not salvage.is_ours(path):
                raise NoLibraryError(f"{path} is no run library: {fault}") from None
            connection, file = self._salvage(file), None
        except OSError as fault:
            raise LibraryError(f"the run library {path} cannot be opened: {files.reason(fault)}") from None
        except ValueError as fault:
            raise NoLibraryError(str(fault)) from None
        self._prepare(connection, file)
        if without_log and schema.keeps_log(path):
            self.lacks = missing_log(connection, path)

    def close(self) -> None:
        """Close the connection."""
        if self.is_replaced:
            with suppress(sqlite3.Error):
                self.finish_log()
        self._connection.close()
        self._open.close()

    def finish_log(self) -> None:
        """Empty the log, unless another program is reading or the disk is full: it is valid where it is, but beside
        another file it would destroy that (open_files.py)."""
        self._connection.execute("PRAGMA busy_timeout = 0")
        try:
            with suppress(sqlite3.OperationalError):
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        finally:
            self._connection.execute(f"PRAGMA busy_timeout = {int(1000 * schema.PATIENCE)}")

    def set_aside(self) -> None:
        """Continue with a new file in place of a damaged one, with everything that could be saved. If another program
        was faster, continue with its file. LibraryError on failure: the damaged file is then open again, or `replaced`
        is true."""
        replaced, file = self.is_replaced, self._open.file
        self.close()
        if replaced:
            self.__init__(self.path)
            return
        try:
            connection = self._salvage(file)
        except LibraryError:
            with suppress(sqlite3.Error, OSError, ValueError):
                self._prepare(schema.connect(self.path), file)
            raise
        self._prepare(connection)

    @property
    def is_replaced(self) -> bool:
        """True once the file that was opened was deleted, replaced or closed."""
        return self._open.is_replaced

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Write everything within, or none of it. sqlite3.Error passes through."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            if self.is_replaced:  # while this waited for the program that salvages the file
                raise ReplacedError("somebody has replaced the file; try again")
            yield self._connection
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:  # SQLite rolls back after some errors by itself
                self._connection.execute("ROLLBACK")
            raise

    # ---- finding

    def entries(self, search: str = "", *, deleted: bool = False) -> list[Entry]:
        """Return the runs, newest first, that contain every word of `search` in title, preset, id, outcome, note or
        tags."""
        with library_errors(self.path):
            try:
                listed = lines(self._connection, deleted)
            except sqlite3.DatabaseError as fault:
                if not is_damage(fault):
                    raise
                self.set_aside()
                listed = lines(self._connection, deleted)
        words = search.casefold().split()
        return [entry for entry in listed if all(word in searchable_text(entry) for word in words)]

    def version(self) -> int:
        """Return a number that changes once another connection has changed the library. Cheap."""
        with library_errors(self.path):
            return self._connection.execute("PRAGMA data_version").fetchone()[0]

    def find(self, text: str) -> str:
        """Return the id of the run whose id is `text`, or the only one that begins with it; "last" is the newest
        run."""
        with library_errors(self.path):
            query = "SELECT id FROM runs WHERE deleted IS NULL AND typeof(id) = 'text' ORDER BY +started DESC, id DESC"
            ids = [run for each in (query, LOST) for (run,) in self._connection.execute(each)]
        if text == "last" and ids:
            return ids[0]
        matches = [text] if text in ids else [known for known in ids if text and known.startswith(text)]
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise LibraryError(
                f"{quote(text)} could be {plural(len(matches), 'run', 'runs')}: "
                f"{', '.join(matches[:3])}{', …' if len(matches) > 3 else ''}"
            )
        newest = f"; the newest is {ids[0]}" if ids else ", which is empty"
        raise LibraryError(f"no run {quote(text)} in the library {self.path}{newest}; `gradstudio runs` lists them")

    def load(self, run: str, known: History | None = None) -> Run:
        """Return a run as it was measured. `known`: an earlier reading, whose full blocks of rows are not read
        again."""
        with library_errors(self.path):
            read = stored_runs.load(self._connection, self.path, run, known)
            if read.status == "interrupted":  # its program may have written the end, and ended, since its row was read
                read = stored_runs.load(self._connection, self.path, run, read.history)
            return read

    def lines(self, run: str) -> list[tuple[str, Sequence[Any]]]:
        """Return all rows of a run, each with the name of its table."""
        with library_errors(self.path):
            return salvage.lines(self._connection, run)

    def snapshots(self, runs: Iterable[str]) -> list[tuple[str, int, bytes]]:
        """Return run, step and bytes of every stored snapshot of these runs."""
        with library_errors(self.path):
            selected = [
                self._connection.execute("SELECT run, step, content FROM snapshots WHERE run = ? ORDER BY step", (run,))
                for run in runs
            ]
            return [(str(row["run"]), row["step"], row["content"]) for rows in selected for row in rows]

    def family(self, run: str) -> list[str]:
        """Return the ids of a run's family: its ancestors and all of their branches, including itself, each after its
        parent."""
        with library_errors(self.path):
            query = "SELECT id, parent FROM runs WHERE deleted IS NULL ORDER BY +started"
            parents = dict(self._connection.execute(query).fetchall())
        root, seen = run, {run}
        while parents.get(root) in parents and parents[root] not in seen:
            root = parents[root]
            seen.add(root)
        members = [root]
        for member in members:
            members += [other for other, parent in parents.items() if parent == member and other not in members]
        return members

    def line(self, run: Run) -> list[Run]:
        """Return the ancestors of a branch, the oldest first, as far as they are available and undamaged."""
        runs = []
        for id in run.ancestors:
            with suppress(LibraryError):
                runs.append(self.load(id))
        return runs

    def rename(self, run: str, title: str) -> None:
        """Change the title of a run; LibraryError if it is too long."""
        if not 0 < len(title) <= LONGEST_TITLE:
            raise LibraryError(f"a title of {len(title):,} characters is not allowed; allowed: 1 to {LONGEST_TITLE}")
        with library_errors(self.path), self.transaction() as connection, updating(connection, run):
            connection.execute("UPDATE runs SET title = ? WHERE id = ?", (title, run))

    # ---- what the user does with a run

    def annotate(self, run: str, *, note: str | None = None, tags: Sequence[str] | None = None) -> None:
        """Set the note or tags of a run; LibraryError if they are too long."""
        if note is not None and len(note) > LONGEST_NOTE:
            raise LibraryError(f"a note of {len(note):,} characters is too long; allowed: at most {LONGEST_NOTE:,}")
        if tags is not None:
            tags = list(dict.fromkeys(" ".join(tag.split()) for tag in tags if tag.strip()))
            if len(tags) > MOST_TAGS or any(len(tag) > LONGEST_TAG for tag in tags):
                raise LibraryError(f"allowed: at most {MOST_TAGS} tags of at most {LONGEST_TAG} characters")
        with library_errors(self.path), self.transaction() as connection, updating(connection, run):
            if note is not None:
                connection.execute("UPDATE runs SET note = ? WHERE id = ?", (note, run))
            if tags is not None:
                connection.execute("UPDATE runs SET tags = ? WHERE id = ?", (dumps(tags), run))

    def request(self, run: str, word: str, factor: float) -> None:
        """Send a request to a run that a program is training (requests.py); LibraryError if it is over."""
        with library_errors(self.path), self.transaction() as connection:
            row = connection.execute("SELECT * FROM runs WHERE id = ?", (run,)).fetchone()
            if row is None or outcome_of(row) in (*OVER, DAMAGED):
                raise LibraryError(f"the run {quote(run)} is over")
            connection.execute(
                "INSERT INTO requests SELECT ?, coalesce(max(number), 0) + 1, ?, ? FROM requests WHERE run = ?",
                (run, word, factor, run),
            )

    def requests(self, run: str, after: int) -> list[tuple[int, Any, Any]]:
        """Return number, word and factor of the requests to a run after the one with this number."""
        with library_errors(self.path):
            query = "SELECT number, word, factor FROM requests WHERE run = ? AND number > ? ORDER BY number"
            return [tuple(row) for row in self._connection.execute(query, (run, after))]

    def delete(self, runs: Iterable[str]) -> None:
        """Remove runs from the list. `restore` brings them back until `purge`. LibraryError for a run that is being
        written."""
        with library_errors(self.path), self.transaction() as connection:
            deletion.delete(connection, runs)

    def restore(self, runs: Iterable[str]) -> None:
        """Put deleted runs back into the list."""
        with library_errors(self.path), self.transaction() as connection:
            deletion.restore(connection, runs)

    def purge(self, *, older_than: float = 0.0, runs: Iterable[str] | None = None) -> int:
        """Permanently remove runs that were deleted at least `older_than` seconds ago, or only these of them, and free
        their space. A run that is being written stays. Return their number."""
        with library_errors(self.path):
            with self.transaction() as connection:
                gone = deletion.remove(connection, time.time() - older_than, runs)
            if gone:
                with self.transaction() as connection:  # each call gives one page back
                    for _ in range(connection.execute("PRAGMA freelist_count").fetchone()[0]):
                        connection.execute("PRAGMA incremental_vacuum")
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return gone

    def check(self) -> str:
        """Return the result of the database's own check: "ok", or what is wrong."""
        with library_errors(self.path):
            return "; ".join(row[0] for row in self._connection.execute("PRAGMA integrity_check(5)"))

    # ---- inside

    def _prepare(self, connection: sqlite3.Connection, file: Identity | None = None) -> None:
        """Prepare a connection that was just opened. `file`: the identity of the existing file; None if it was just
        created."""
        file = file or identity(self.path)
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA schema_version").fetchall()  # SQLite creates its log on the first read
        self._connection, self._open = connection, OpenFile(self.path, file)

    def _salvage(self, file: Identity | None) -> sqlite3.Connection:
        """Return a new library in place of this damaged file. LibraryError on failure."""
        with library_errors(self.path):
            self.notice, connection = salvage.set_aside(self.path, file)
            return connection


def library_exists(path: Path) -> bool:
    """Return whether there is a library; LibraryError if that cannot be determined."""
    if why := files.why_unreachable(path):
        raise LibraryError(f"the run library cannot be opened: {why}")
    return os.path.exists(path)

"""One run as one file (.gsrun), which is a library of that run alone.

The file contains what was measured and found, its note and tags. It has no snapshot, no process, no folder of the
machine that it comes from, and nothing of the environment."""

from __future__ import annotations

import math
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from gradstudio.core import files
from gradstudio.core.knobs import quote
from gradstudio.core.text import without_folders
from gradstudio.session.library import checksums, deletion, salvage, schema
from gradstudio.session.library.library_faults import LibraryError, library_errors
from gradstudio.session.library.store import Library

ENDING = ".gsrun"
_TABLES = ("runs", "rows", "entries", "rank_rows")
_OWN_TEXTS = ("id", "preset_id", "preset", "experiment")  # knobs, and the text of a studio file

Line = tuple[str, Any]  # of a table


def export(library: Library, run: str, path: Path) -> None:
    """Write a run of the library to a file, atomically. LibraryError on failure."""
    library.load(run)  # the whole run, or a sentence that says what is damaged
    lines = [(table, _row_without_folders(line)) for table, line in library.lines(run) if table in _TABLES]
    try:
        files.check_kind(path)
        with files.temporary_folder(path.absolute().parent) as folder:
            new = Path(folder, path.name)
            with closing(schema.connect(new)) as connection:
                connection.execute("BEGIN IMMEDIATE")
                _put(connection, run, lines)
                connection.execute("COMMIT")
                connection.execute("PRAGMA journal_mode = DELETE")  # so that everything is in the one file
            os.replace(new, path)
    except (OSError, sqlite3.Error) as fault:
        raise LibraryError(f"{path} cannot be written: {files.reason(fault)}") from None


def import_run(library: Library, path: Path, *, later: bool = False) -> str:
    """Import the run of a file into the library, and return its id. LibraryError if the file has none, or the library
    already has one with this id; with `later`, only if the file's run has no more steps than that one."""
    run, lines = _read(path)
    with library_errors(library.path), library.transaction() as connection:
        known = connection.execute("SELECT steps FROM runs WHERE id = ?", (run,)).fetchone()
        if known is not None:
            if not (later and _steps(lines) > known["steps"]):
                raise LibraryError(f"the run {quote(run)} is in the library {library.path} already")
            deletion.delete(connection, [run])
            deletion.remove(connection, math.inf, [run])
        _put(connection, run, lines)
    return run


def _steps(lines: Sequence[Line]) -> int:
    return next(line["steps"] for table, line in lines if table == "runs")


def _read(path: Path) -> tuple[str, list[Line]]:
    """Return the id and the rows of the run in a file. A copy is read, as SQLite writes beside what it reads."""
    why, copy = "it is no exported run", Path()
    try:
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder, f"run{ENDING}")
            files.check_kind(path)
            with path.open("rb") as file:
                if file.read(16) != b"SQLite format 3\0":
                    raise ValueError(why)
            shutil.copyfile(path, copy)
            with closing(sqlite3.connect(f"{copy.as_uri()}?immutable=1", uri=True)) as tried:
                schema.distrust(tried)
                schema.check(tried, path, tried.execute("PRAGMA user_version").fetchone()[0])
                if tried.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
                    raise ValueError("it is damaged")
            with closing(Library(copy)) as given:
                ids = [entry.id for entry in given.entries()]
                if len(ids) != 1:
                    raise ValueError(why if not ids else f"it has {len(ids)} runs; open it with --library instead")
                given.load(ids[0])
                return ids[0], [(table, line) for table, line in given.lines(ids[0]) if table in _TABLES]
    except LibraryError as fault:
        raise LibraryError(f"{path} is not taken in: {str(fault).replace(str(copy), 'it')}") from None
    except (OSError, ValueError, sqlite3.Error) as fault:
        reason = files.reason(fault) if isinstance(fault, OSError) else str(fault)
        raise LibraryError(f"{path} is not taken in: {reason}") from None


def _put(connection: sqlite3.Connection, run: str, lines: Sequence[Line]) -> None:
    """Write a run, with checksums of its current content, and without the process that wrote it."""
    texts: dict[str, list[str]] = {}
    for table, line in lines:
        if table == "runs":
            names = [column[1] for column in connection.execute("PRAGMA table_info(runs)")]
            values = {**dict(zip(names, line, strict=True)), "process": "exported", "deleted": None}
            with checksums.updating(connection, run):
                salvage.put(connection, table, [values[name] for name in names])
            continue
        salvage.put(connection, table, line)
        if table == "entries":
            texts.setdefault(line[1], []).append(line[3])
        else:
            checksums.write(connection, run, table, line[1], checksums.of_values(line[1:]))
    for kind, entries in texts.items():
        checksums.write(connection, run, kind, 0, checksums.of_values(entries))


def _row_without_folders(line: Any) -> list[Any]:
    """Return a row with the folders removed from its paths."""
    names = line.keys()
    return [
        without_folders(value) if isinstance(value, str) and name not in _OWN_TEXTS else value
        for name, value in zip(names, line, strict=True)
    ]

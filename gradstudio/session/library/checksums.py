"""Checksums: what is read from the library is what was written, or an error says that it is not.

A disk may change a bit without SQLite noticing. Runs from before version 2 have no checksums, and are read without; of
any other run, each part has one. Each is a CRC-32 of values in one order, in the table `checksums`: "list" and "run"
for the two halves of the row in the table `runs`, "rows" for each chunk of rows, "rank_rows" for the ranks'
measurements in it, and one for each kind of entries, over all of them."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

LIST, RUN, ROWS, RANKS = "list", "run", "rows", "rank_rows"  # parts; anything else is a kind of entries
# The columns of `runs` that are read for the list of runs: none of the large ones.
LISTED = (
    "id", "title", "preset_id", "status", "process", "started", "steps", "final_loss", "accuracy", "seconds", "note",
    "tags", "deleted", "parent", "parent_step",
)  # fmt: skip


class ChecksumError(ValueError):
    """Something differs from what was written."""


def of_values(values: Iterable[Any], start: int = 0) -> int:
    """Return the checksum of values in SQLite's representation; `start` is that of the preceding values."""
    for value in values:
        data = value if isinstance(value, bytes) else repr(value).encode("utf-8", "replace")
        start = zlib.crc32(data + b"\0", start)
    return start


def write(connection: sqlite3.Connection, run: str, part: str, number: int, crc: int) -> None:
    """Write a checksum, replacing the existing one."""
    connection.execute("INSERT OR REPLACE INTO checksums VALUES (?, ?, ?, ?)", (run, part, number, crc))


@contextmanager
def updating(connection: sqlite3.Connection, run: str) -> Iterator[None]:
    """Create or change a run's row in this context, and then write its checksums, within one transaction. Earlier
    damage stays detectable."""
    before = _of_line(connection, run)
    query = "SELECT part, crc FROM checksums WHERE run = ? AND part IN (?, ?)"
    known = dict(connection.execute(query, (run, LIST, RUN)).fetchall())
    yield
    for part, crc in _of_line(connection, run).items():
        if not before or known.get(part) == before[part]:
            write(connection, run, part, 0, crc)


def check_run(
    line: Mapping[str, Any],
    chunks: Iterable[Sequence[Any]],
    entries: Mapping[str, Iterable[str]],
    sums: Iterable[Sequence[Any]],
    of_ranks: Iterable[Sequence[Any]],
) -> None:
    """Raise ChecksumError if a run differs from what was written, or a part of it has no checksum although others have.
    `chunks` are its chunks of rows, `entries` the texts of each kind, `sums` its rows in the table `checksums`,
    `of_ranks` the chunks of rows of its ranks."""
    known = {(part, number): crc for part, number, crc in sums}
    computed = {(part, 0): of_half(line, part) for part in (LIST, RUN)}
    computed |= {(kind, 0): of_values(texts) for kind, texts in entries.items()}
    for part, pieces in ((ROWS, chunks), (RANKS, of_ranks)):
        computed |= {(part, piece[0]): of_values(piece) for piece in pieces}
    if known and not known.keys() >= computed.keys():
        raise ChecksumError("a part of it has no checksum")
    for (part, number), crc in known.items():
        if computed.get((part, number), 0) != crc:
            steps = f"its rows{' of ranks' if part == RANKS else ''} from step {number} on"
            what = {LIST: "its line in the list", RUN: "its line in the list", ROWS: steps, RANKS: steps}
            raise ChecksumError(f"{what.get(part, f'its list of {part}')} is not what was written")


def _of_line(connection: sqlite3.Connection, run: str) -> dict[str, int]:
    """Return the checksums of the two halves of a run's row; none if the row is missing."""
    cursor = connection.execute("SELECT * FROM runs WHERE id = ?", (run,))
    line = dict(zip((column[0] for column in cursor.description), cursor.fetchone() or (), strict=False))
    return {part: of_half(line, part) for part in (LIST, RUN)} if line else {}


def of_half(line: Mapping[str, Any], part: str) -> int:
    """Return the checksum of the columns of a row that the list shows, or of the others."""
    names = LISTED if part == LIST else sorted({*line} - {*LISTED})
    return of_values(line[name] for name in names)

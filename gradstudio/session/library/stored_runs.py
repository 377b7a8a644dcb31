"""Reading a run back as it was measured. Altered values are detected and rejected."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from gradstudio.core.history import BLOCK, COLUMNS, LAYER_METRICS, OLDER, OLDER_METRICS, History
from gradstudio.core.knobs import quote
from gradstudio.core.rank_figures import RANK_COLUMNS
from gradstudio.core.ranks_allowed import SEVERAL
from gradstudio.core.unknown import BITS, OLDER_BITS
from gradstudio.session.library import checksums
from gradstudio.session.library.checksums import check_run
from gradstudio.session.library.library_faults import LibraryError
from gradstudio.session.library.packing import PackingError, unpack
from gradstudio.session.library.run_entries import DAMAGE, outcome_of
from gradstudio.session.library.run_values import layers_from, loads, run_from
from gradstudio.session.record.run import Run

MOST_LAYERS = 2000  # of a run: 100 blocks of a transformer have 1,600
# Rows that unpack to more bytes than PLENTY, and to more than DENSEST times their own, are not measurements: the time
# of a step alone is noise.
PLENTY, DENSEST = 1 << 30, 200
_PARTS = (  # of a run, apart from its row in `runs`
    "SELECT start, count, columns, layers FROM rows WHERE run = :run AND start + count > :start ORDER BY start",
    "SELECT start, count, ranks, figures FROM rank_rows WHERE run = :run ORDER BY start",
    "SELECT kind, content FROM entries WHERE run = :run ORDER BY kind, number",
    "SELECT part, number, crc FROM checksums WHERE run = :run",
)
_FIRST = -(1 << 63)  # the smallest number of SQLite


def load(connection: sqlite3.Connection, path: Path, run: str, known: History | None = None) -> Run:
    """Return a run as it was measured. `known`: an earlier reading, whose full blocks of rows are not read again."""
    with _at_one_moment(connection):
        row = connection.execute("SELECT * FROM runs WHERE id = ?", (run,)).fetchone()
        if row is None:
            raise LibraryError(f"no run {quote(run)} in the library {path}")
        try:
            history = History(layers_from(row["layers"]))
            if known is not None and known.layers == history.layers and not known.ranks.ranks:
                history = known.full_blocks()
            shared = len(history)
            asked = {"run": run, "start": shared or _FIRST}
            chunks, of_ranks, lines, sums = (connection.execute(query, asked).fetchall() for query in _PARTS)
            entries: dict[str, list[str]] = {}
            for kind, content in lines:
                entries.setdefault(kind, []).append(content)
            if shared:
                read = {chunk["start"] for chunk in chunks}
                sums = [(part, at, crc) for part, at, crc in sums if part != checksums.ROWS or at in read]
            check_run(dict(row), chunks, entries, sums, of_ranks)
            lists = {kind: [loads(content) for content in contents] for kind, contents in entries.items()}
            _add_rows(history, chunks)
            _add_ranks(history, of_ranks)
            if row["steps"] and not history:
                raise PackingError("its rows are missing")
            read = run_from(row, lists, history, outcome_of(row), _ancestors(connection, row))
            if history.ranks.ranks not in (0, read.experiment.distributed.ranks):
                raise PackingError(f"its rows are of {history.ranks.ranks} ranks")
            return read
        except DAMAGE as fault:
            what = " ".join(str(fault).split())[:200] or type(fault).__name__
            raise LibraryError(f"the run {run} in {path} is damaged: {what}") from None


def _ancestors(connection: sqlite3.Connection, row: sqlite3.Row) -> dict[str, int]:
    """Return every run that contributed rows to a run, the oldest first, and up to which step, as far as the library
    has them."""
    line: dict[str, int] = {}
    own, step = row["id"], row["steps"]
    while row is not None and row["parent"] and row["parent"] not in (own, *line):
        parent, step = row["parent"], min(step, row["parent_step"] or 0)
        line[parent] = step
        row = connection.execute("SELECT parent, parent_step FROM runs WHERE id = ?", (parent,)).fetchone()
    return dict(reversed(line.items()))


@contextmanager
def _at_one_moment(connection: sqlite3.Connection) -> Iterator[None]:
    """Read everything within as of one moment, whatever another program writes meanwhile."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _add_rows(history: History, chunks: Sequence[sqlite3.Row]) -> None:
    """Add the rows, up to the first gap; the first chunk may overlap existing rows. PackingError if they are not rows
    of a run."""
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
        rows = _unpack(columns, [(count, width) for width in (len(COLUMNS), *OLDER)], np.float64)
        rows.view(np.uint64)[rows.view(np.uint64) == OLDER_BITS] = BITS
        shapes = [(count, metrics, len(history.layers)) for metrics in (len(LAYER_METRICS), *OLDER_METRICS)]
        of_layers = _unpack(measured, shapes, np.float32)
        history.extend(rows[there:], of_layers.transpose(1, 0, 2)[:, there:])


def _add_ranks(history: History, chunks: Sequence[sqlite3.Row]) -> None:
    """Add the ranks' measurements, up to the first gap and no further than the rows; their size is checked.
    PackingError if they are not those of ranks."""
    for start, count, ranks, figures in chunks:
        if start != len(history.ranks) or start >= len(history):
            break
        if not (0 < count <= BLOCK and ranks in SEVERAL):
            raise PackingError(f"a piece of {count:,} rows of {ranks:,} ranks")
        if ranks != (history.ranks.ranks or ranks):
            raise PackingError(f"a piece of {ranks:,} ranks behind one of {history.ranks.ranks:,}")
        history.ranks.extend(unpack(figures, (count, ranks, len(RANK_COLUMNS)), np.float32))


def _unpack(data: bytes, shapes: list[tuple[int, ...]], kind: type[np.floating]) -> np.ndarray:
    """Return the array of the first of these shapes that the bytes contain: rows of an older version are shorter."""
    for shape in shapes:
        with suppress(PackingError):
            return unpack(data, shape, kind)
    raise PackingError("its rows have no width of this version or an older one")

"""The few snapshots of a run that are written when it is over, so that another day too nobody waits long for it to stand before any of
its steps. Without them it is made again from step 0."""

from __future__ import annotations

import sqlite3
import struct
import zlib
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path

from gradstudio.session.branches import last_healthy_step
from gradstudio.session.library.store import Library, LibraryError
from gradstudio.session.run import Run
from gradstudio.session.snapshots import Kept, Snapshots, Stored

MOST = 8  # of a run
SECONDS = 1.0  # of training that are worth one
A_SECOND = 512 << 10  # bytes that a second of training is worth
BYTES = 8 << 20  # of a run
ALL = 256 << 20  # bytes of all runs; those of the oldest go
_HEADER = struct.Struct("<Id")  # checksum, seconds


def packed(run: Run, snapshots: Snapshots) -> list[tuple[int, bytes]]:
    """The step and the bytes of those that are to be written."""
    return [(kept.step, _pack(kept)) for kept in chosen(run, snapshots)]


def chosen(run: Run, snapshots: Snapshots) -> list[Kept]:
    """As evenly over the time that the run has trained as there are some; of one that broke, up to where it was healthy."""
    healthy = last_healthy_step(run)
    last = len(run.history) if run.first_nonfinite_step is None else run.first_nonfinite_step if healthy is None else healthy
    own = [kept for kept in snapshots.of(run) if 0 < kept.step <= last]
    if not own:
        return []
    start = float(run.history.column("step_seconds", 0, run.parent_step).sum())
    seconds = own[-1].seconds - start
    room = min(MOST, int(seconds / SECONDS), int(min(BYTES, A_SECOND * seconds) / max(kept.state.nbytes for kept in own)))
    targets = [start + seconds * share / room for share in range(1, room + 1)]
    nearest = {min(own, key=lambda kept: abs(kept.seconds - target)).step for target in targets}
    return [kept for kept in own if kept.step in nearest]


def write(connection: sqlite3.Connection, run: str, states: list[tuple[int, bytes]]) -> None:
    """Instead of those that are there of this run."""
    connection.execute("DELETE FROM snapshots WHERE run = ?", (run,))
    connection.executemany("INSERT INTO snapshots VALUES (?, ?, ?)", [(run, *state) for state in states])
    if states:
        size = "SELECT run, sum(length(content)) OVER (ORDER BY started DESC, id DESC) AS size FROM snapshots JOIN runs ON id = run"
        connection.execute(f"DELETE FROM snapshots WHERE run IN (SELECT run FROM ({size}) WHERE size > ?)", (ALL,))


def read(path: Path, runs: Iterable[str]) -> list[Stored]:
    """The snapshots of these runs that the library in this file has and that are whole; none where anything is wrong with it."""
    found = []
    with suppress(LibraryError):
        if path.exists():
            with closing(Library(path)) as library:
                found = library.snapshots(runs)
    return [stored for run, step, content in found if (stored := _unpack(run, step, content))]


def _pack(kept: Kept) -> bytes:
    state = kept.state.pack()
    return _HEADER.pack(zlib.crc32(state), kept.seconds) + state


def _unpack(run: str, step: int, content: bytes) -> Stored | None:
    if len(content) < _HEADER.size:
        return None
    checksum, seconds = _HEADER.unpack_from(content)
    state = content[_HEADER.size :]
    return Stored(run, step, seconds, state) if zlib.crc32(state) == checksum else None

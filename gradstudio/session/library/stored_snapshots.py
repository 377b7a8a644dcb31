"""The few snapshots of a run that the library stores, so that a rewind is short on another day too.

They are written when the run is over. Without them a rewind replays every step from step 0."""

from __future__ import annotations

import sqlite3
import struct
import zlib
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path

from gradstudio.session.library.library_faults import LibraryError
from gradstudio.session.library.store import Library, library_exists
from gradstudio.session.record.branches import last_healthy_step
from gradstudio.session.record.run import Run
from gradstudio.session.record.snapshots import KeptSnapshot, RemoteSnapshots, Snapshots, StoredSnapshot

MOST = 8  # snapshots of a run
SECONDS = 1.0  # of training for each snapshot, at least
A_SECOND = 512 << 10  # bytes per second of training, at most
BYTES = 8 << 20  # of all snapshots of a run, at most
ALL = 256 << 20  # bytes of the snapshots of all runs; those of the oldest runs are dropped
_HEADER = struct.Struct("<Id")  # checksum, seconds


def pack(run: Run, snapshots: Snapshots | RemoteSnapshots) -> list[tuple[int, bytes]]:
    """Return step and bytes of the snapshots to write."""
    if not isinstance(snapshots, Snapshots):
        return snapshots.pack(run)
    return [(kept.step, _pack(kept)) for kept in chosen(run, snapshots)]


def chosen(run: Run, snapshots: Snapshots) -> list[KeptSnapshot]:
    """Return the snapshots to write: spread evenly over the training time, and for a run that diverged only up to its
    last healthy step."""
    last = len(run.history)
    if (broke := run.first_nonfinite_step) is not None:
        healthy = last_healthy_step(run)
        last = broke if healthy is None else healthy
    own = [snapshot for snapshot in snapshots.of(run) if 0 < snapshot.step <= last]
    if not own:
        return []
    start = float(run.history.column("step_seconds", 0, run.parent_step).sum())
    seconds = own[-1].seconds - start
    room = min(
        MOST, int(seconds / SECONDS), int(min(BYTES, A_SECOND * seconds) / max(kept.state.nbytes for kept in own))
    )
    targets = [start + seconds * share / room for share in range(1, room + 1)]
    nearest = {min(own, key=lambda kept: abs(kept.seconds - target)).step for target in targets}
    return [kept for kept in own if kept.step in nearest]


def write(connection: sqlite3.Connection, run: str, states: list[tuple[int, bytes]]) -> None:
    """Replace the stored snapshots of a run by these, and make room if all runs together have too many."""
    connection.execute("DELETE FROM snapshots WHERE run = ?", (run,))
    connection.executemany("INSERT INTO snapshots VALUES (?, ?, ?)", [(run, *state) for state in states])
    if states:
        size = (
            "SELECT run, sum(length(content)) OVER (ORDER BY started DESC, id DESC) AS size FROM snapshots JOIN "
            "runs ON id = run"
        )
        connection.execute(f"DELETE FROM snapshots WHERE run IN (SELECT run FROM ({size}) WHERE size > ?)", (ALL,))


def read(path: Path, runs: Iterable[str]) -> list[StoredSnapshot]:
    """Return the undamaged snapshots of these runs in the library of this file; none if the library cannot be read."""
    snapshots = []
    with suppress(LibraryError):
        if library_exists(path):
            with closing(Library(path)) as library:
                snapshots = library.snapshots(runs)
    return [stored for run, step, content in snapshots if (stored := _unpack(run, step, content))]


def _pack(snapshot: KeptSnapshot) -> bytes:
    """Return a snapshot as bytes with a checksum."""
    state = snapshot.state.pack()
    return _HEADER.pack(zlib.crc32(state), snapshot.seconds) + state


def _unpack(run: str, step: int, content: bytes) -> StoredSnapshot | None:
    """Return the snapshot in these bytes, None if they are damaged."""
    if len(content) < _HEADER.size:
        return None
    checksum, seconds = _HEADER.unpack_from(content)
    state = content[_HEADER.size :]
    return StoredSnapshot(run, step, seconds, state) if zlib.crc32(state) == checksum else None

"""Runs that a worker at a place continues after the connection to it has broken: it writes them into the library there,
where they can be followed, paused and stopped."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import closing, suppress
from typing import Any

from gradstudio.core import files
from gradstudio.session.library.library_faults import LibraryError
from gradstudio.session.library.store import Library, library_exists
from gradstudio.session.library.writer import LibraryWriter
from gradstudio.session.record.run import Run
from gradstudio.session.record.snapshots import Snapshots
from gradstudio.session.running.worker import Worker

SILENT = 15.0  # seconds without a word from the other side, after which the runs are written
LAST_WRITING = 30.0  # seconds that the library gets at the end
OTHER_WRITING = 2.0  # seconds in which the other side has written the end of its run, where both have one library


class _Heedless(io.FileIO):
    """A file that silently drops what cannot be written because its reader is gone."""

    def write(self, data: Any) -> int:
        with suppress(OSError):
            return super().write(data)
        return len(data)


class KeptRuns:
    """The runs of one worker that outlive the connection."""

    def __init__(self) -> None:
        self._runs: list[tuple[Run, Worker, Snapshots]] = []
        self._written: list[Run] = []
        self._writer: LibraryWriter | None = None
        self._last_contact = time.monotonic()
        self._alone = threading.Event()
        self._prepared = False
        self._writing = threading.Lock()  # by the watcher and by the main thread

    def prepare(self) -> None:
        """Get ready to outlive the other side; call this in the main thread."""
        if self._prepared:
            return
        self._prepared = True
        if hasattr(signal, "SIGHUP"):
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with suppress(OSError, AttributeError):  # it leads a session already
            os.setsid()
        sys.stdout = sys.stderr = io.TextIOWrapper(
            io.BufferedWriter(_Heedless(2, "w", closefd=False)), errors="backslashreplace", line_buffering=True
        )
        threading.Thread(target=self._watch, name="keeping runs", daemon=True).start()

    def add(self, runs: Iterable[Run], worker: Worker, snapshots: Snapshots) -> None:
        """Add the runs of a worker."""
        self._runs = [*(each for each in self._runs if each[1].is_alive()), *((run, worker, snapshots) for run in runs)]

    def note_contact(self) -> None:
        """Note that the other side has just sent something."""
        self._last_contact = time.monotonic()

    def go_on(self) -> None:
        """Continue alone until every run that still trains is over and written."""
        self._alone.set()
        if not any(worker.is_alive() for _, worker, _ in self._runs):
            return
        if any(self._is_written_by_other(run) for run, _, _ in self._runs):
            time.sleep(OTHER_WRITING)
        self._write(everything=True)
        for _, worker, _ in self._runs:
            worker.join()
        if self._writer is not None:
            self._writer.close(LAST_WRITING)

    def _watch(self) -> None:
        """Write the runs once the other side has been silent for long: a connection may break without an end."""
        while not self._alone.wait(1.0):
            if time.monotonic() - self._last_contact > SILENT:
                self._write(everything=False)

    def _write(self, *, everything: bool) -> None:
        """Write the training runs into the library here from now on. Unless `everything`, leave out runs that the other
        side may still write into this same library."""
        with self._writing:
            writer = self._writer = self._writer or LibraryWriter(files.user_library())
            for run, worker, snapshots in self._runs:
                known = any(run is each for each in self._written)
                if worker.is_alive() and not known and (everything or not self._is_written_by_other(run)):
                    self._written.append(run)
                    writer.follow(run, snapshots, worker.on_request, worker.show_waiting)

    def _is_written_by_other(self, run: Run) -> bool:
        path = files.user_library()
        if any(run is each for each in self._written) or not library_exists(path):
            return False
        with suppress(LibraryError), closing(Library(path)) as library:
            return library.find(run.id) == run.id
        return False

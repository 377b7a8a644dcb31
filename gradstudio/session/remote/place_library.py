"""The run library of a place, read by a worker there."""

from __future__ import annotations

import math
import tempfile
import threading
from pathlib import Path
from typing import Any

from gradstudio.core.typed_json import from_plain
from gradstudio.core.worker_places import Place
from gradstudio.session.library import travelling
from gradstudio.session.library.library_faults import LibraryError
from gradstudio.session.library.requests import Word
from gradstudio.session.library.run_entries import Entry
from gradstudio.session.library.store import Library
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_writer import RunWriter
from gradstudio.session.remote.one_answer import OneAnswer
from gradstudio.session.remote.run_document import run_from
from gradstudio.session.remote.run_news import RunReader
from gradstudio.session.remote.worker_pool import WorkerPool
from gradstudio.worker.frames import Frame

PATIENCE = 120.0  # seconds to wait for an answer, most of them for a slow start


class PlaceLibrary:
    """The requests to that library. Each method but `request` waits for its answer; LibraryError says why there is
    none."""

    def __init__(self, place: Place, pool: WorkerPool) -> None:
        self.place, self._pool = place, pool

    def entries(self, search: str = "") -> list[Entry]:
        """Return the runs, newest first, that have every word of `search`."""
        return from_plain(list[Entry], self._ask({"ask": "entries", "search": search})[0]["entries"])

    def fetch(self, run: str) -> memoryview:
        """Return a run as the content of a .gsrun file."""
        return self._ask({"ask": "export", "run": run})[1]

    def follow(self, run: str) -> FollowedPlaceRun:
        """Return a run that is read as it grows there."""
        return FollowedPlaceRun(self, self._pool, run)

    def request(self, run: str, word: Word, factor: float) -> None:
        """Send a request to a run that some program trains there."""
        self._ask({"ask": "request", "run": run, "word": word, "factor": factor})

    def _ask(self, question: dict[str, Any]) -> tuple[dict[str, Any], memoryview]:
        asked = OneAnswer(self._pool.warm(), {"m": "library", **question})
        try:
            answer = asked.wait(PATIENCE)
        except RuntimeError as fault:
            raise LibraryError(f"{self.place.name}: {fault}") from None
        if answer is None:
            raise LibraryError(f"The worker {asked.why}." if asked.why else f"{self.place.name} does not answer")
        return answer


def import_run(into: Library, content: memoryview) -> str:
    """Import a fetched run into a library here, replacing the part that arrived before the connection broke, and return
    its id. LibraryError on failure."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"fetched{travelling.ENDING}")
        path.write_bytes(content)
        return travelling.import_run(into, path, later=True)


class FollowedPlaceRun:
    """A run of a place. `run` is set once it has arrived, and grows in a thread of the connection."""

    def __init__(self, library: PlaceLibrary, pool: WorkerPool, name: str) -> None:
        self.library = library
        self.run: Run | None = None
        self.problem = ""  # why nothing more comes, though the run is not over
        self._reader: RunReader | None = None
        self._come, self._ended = threading.Event(), False
        self._process = pool.warm()
        self._number = self._process.add(self)
        self._process.post({"m": "follow", "to": self._number, "run": name})

    def wait(self) -> Run:
        """Return the run once it has arrived. LibraryError if it does not."""
        if not self._come.wait(PATIENCE) or self.run is None:
            raise LibraryError(self.problem or f"{self.library.place.name} does not answer")
        return self.run

    @property
    def over(self) -> bool:
        """Whether nothing more comes."""
        return self._ended

    def stop(self) -> None:
        """Follow it no more."""
        self._end("")

    def take(self, frame: Frame) -> None:
        head = frame.head
        if head["m"] == "document":
            self.run = run_from(head["run"], None, None)
            self._reader = RunReader(self.run)
        elif head["m"] == "run" and self._reader is not None:
            self._reader.take(head, frame.raw)
            if "rows" not in head:  # what follows all rows
                self._come.set()
        elif head["m"] == "end":
            problem = from_plain(str, head["problem"])
            self._end(f"{self.library.place.name}: {problem}" if problem else "")

    def unheard(self, seconds: float) -> None:
        if self.run is not None:
            RunWriter(self.run).unheard(seconds)

    def lose(self, why: str, trace: str) -> None:
        if self.run is not None and not self._ended:
            RunWriter(self.run).unheard(math.inf)
        self._end(f"The worker {why}.")

    def _end(self, problem: str) -> None:
        if not self._ended:
            self.problem, self._ended = problem, True
            self._process.drop(self._number)
            self._process.post({"m": "free", "of": self._number})
        self._come.set()

"""The worker's access to the run library of its machine: the list, a run as a file, and a run that some program trains
there."""

from __future__ import annotations

import tempfile
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

from gradstudio.core import files
from gradstudio.core.typed_json import from_plain, to_plain
from gradstudio.session.library import travelling
from gradstudio.session.library.library_faults import LibraryError
from gradstudio.session.library.store import Library, library_exists
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_writer import RunWriter
from gradstudio.session.remote.run_document import document
from gradstudio.session.remote.run_news import RunSender
from gradstudio.session.remote.served_looks import ServedTask
from gradstudio.worker.worker_process import Said

EVERY = 0.5  # seconds between two looks, as often as the library is written
ANYWAY = 8  # checks without a change, after which a run is read anyway: a program that was killed changes nothing


def open_library() -> Library:
    """Open the library of this machine. LibraryError if there is none."""
    path = files.user_library()
    if not library_exists(path):
        raise LibraryError(f"there is no run library {path}")
    return Library(path)


def answer(head: dict[str, Any]) -> Said:
    """Return the answer to a request about the library."""
    with closing(open_library()) as library:
        match head["ask"]:
            case "entries":
                return {"entries": to_plain(library.entries(from_plain(str, head["search"])))}, ()
            case "export":
                with tempfile.TemporaryDirectory() as folder:
                    path = Path(folder, f"run{travelling.ENDING}")
                    travelling.export(library, library.find(from_plain(str, head["run"])), path)
                    return {}, [path.read_bytes()]
            case "request":
                library.request(head["run"], from_plain(str, head["word"]), from_plain(float, head["factor"]))
                return {}, ()
            case _:
                raise ValueError("no such question")


class ServedLibraryRun(ServedTask):
    """A run of the library, sent as it grows."""

    def __init__(self, to: int, name: str) -> None:
        super().__init__(to)
        self._name, self._problem = name, ""
        self._said: list[Said] = []
        self._told: RunSender | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="following a run", daemon=True)

    def begin(self) -> None:
        self._thread.start()
        super().begin()

    def stop(self) -> None:
        self._stopping.set()

    def news(self) -> list[Said]:
        self.over, told = not self._thread.is_alive(), self._told
        said, self._said = self._said, []
        if told is not None:
            said += told.news(self.to)
        return [*said, ({"m": "end", "to": self.to, "problem": self._problem}, ())] if self.over else said

    def _follow(self) -> None:
        try:
            with closing(open_library()) as library:
                run = library.load(library.find(self._name))
                self._said = [({"m": "document", "to": self.to, "run": document(run)}, ())]
                self._told = RunSender(run, rows_too=True)
                self._look_on(library, run)
        except Exception as fault:
            self._problem = str(fault) or type(fault).__name__

    def _look_on(self, library: Library, run: Run) -> None:
        version, idle = library.version(), 0
        while not run.over and not self._stopping.wait(EVERY):
            before, version = version, library.version()
            idle = 0 if version != before or idle >= ANYWAY else idle + 1
            if idle == 0:
                RunWriter(run).catch_up(library.load(run.id, run.history))

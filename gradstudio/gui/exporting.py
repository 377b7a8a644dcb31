"""Files from the window: written in a thread of their own, so that the window goes on while a report is drawn."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from pathlib import Path

from gradstudio.core import files
from gradstudio.session.run import Run

_drawing = threading.Lock()  # matplotlib's settings belong to the whole process


class Export(threading.Thread):
    """Writes a file and keeps what became of it: `done`, then `problem` (empty where it went well) and `details`. `content` makes
    what it will hold, in this thread."""

    def __init__(self, content: Callable[[], files.Content], path: Path) -> None:
        super().__init__(name=f"writing {path.name}", daemon=True)
        self.path = path
        self._content = content
        self.done = False
        self.problem = ""
        self.details = ""
        self.start()

    def run(self) -> None:
        try:
            self._write()
        except OSError as fault:
            self.problem = f"{self.path} was not written: {(fault.strerror or str(fault)).lower()}"
        except Exception as fault:  # whatever a report stumbles over must not take the window with it
            self.problem = f"{self.path} was not written: {type(fault).__name__}: {str(fault)[:200]}"
            self.details = traceback.format_exc()
        self.done = True

    def _write(self) -> None:
        files.write_whole(self.path, self._content())


class EventsExport(Export):
    """Writes a run's event file for TensorBoard into a folder."""

    def __init__(self, run: Run, folder: Path) -> None:
        self._run = run
        super().__init__(lambda: "", folder)

    def _write(self) -> None:
        from gradstudio.session import tensorboard

        self.path = tensorboard.export(self._run, self.path)


def content(run: Run, name: str) -> str | bytes:
    """One of a run's files, by the name that `gradstudio run --out` gives it: report.html, experiment.toml, train.py."""
    from gradstudio.session import output, report  # matplotlib comes with them

    if name.startswith("report."):
        with _drawing:
            return report.content(run, Path(name).suffix[1:])
    return output.FILES[name](run)

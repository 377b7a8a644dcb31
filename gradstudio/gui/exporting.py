"""Files from the window: written in a thread of their own, so that the window goes on while a report is drawn."""

from __future__ import annotations

import threading
import traceback
from pathlib import Path

from gradstudio.core import files
from gradstudio.session.run import Run

_drawing = threading.Lock()  # matplotlib's settings belong to the whole process


class Export(threading.Thread):
    """Writes one of a run's files and keeps what became of it: `done`, then `problem` (empty where it went well) and `details`.

    `name` says which file, as `gradstudio run --out` names them: report.html, report.pdf, experiment.toml, metrics.csv.
    """

    def __init__(self, run: Run, name: str, path: Path) -> None:
        super().__init__(name=f"writing {path.name}", daemon=True)
        self.path = path
        self._of, self._name = run, name
        self.done = False
        self.problem = ""
        self.details = ""
        self.start()

    def run(self) -> None:
        try:
            files.write_whole(self.path, self._content())
        except OSError as fault:
            self.problem = f"{self.path} was not written: {(fault.strerror or str(fault)).lower()}"
        except Exception as fault:  # whatever a report stumbles over must not take the window with it
            self.problem = f"{self.path} was not written: {type(fault).__name__}: {str(fault)[:200]}"
            self.details = traceback.format_exc()
        self.done = True

    def _content(self) -> str | bytes:
        from gradstudio.session import output, report  # matplotlib comes with them

        if self._name.startswith("report."):
            with _drawing:
                return report.content(self._of, Path(self._name).suffix[1:])
        return output.FILES[self._name](self._of)

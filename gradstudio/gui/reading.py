"""A file of curves read in a thread of its own, so that the window goes on while a long log is read."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from pathlib import Path

from gradstudio.session import curves


class Reading(threading.Thread):
    """Reads the curves of a file and keeps what became of it: `done`, then `problem` (empty where it went well), `details` and
    `curves`, which `taken` is for."""

    def __init__(self, path: Path, taken: Callable[[list[curves.Curve]], object]) -> None:
        super().__init__(name=f"reading {path.name}", daemon=True)
        self.taken = taken
        self._path = path
        self.curves: list[curves.Curve] = []
        self.done = False
        self.problem = ""
        self.details = ""
        self.start()

    def run(self) -> None:
        try:
            self.curves = curves.read(self._path)
        except curves.CurveError as fault:
            self.problem = str(fault)
        except Exception as fault:  # whatever a foreign file holds must not take the window with it
            self.problem = f"{self._path} cannot be read: {type(fault).__name__}: {str(fault)[:200]}"
            self.details = traceback.format_exc()
        self.done = True

"""Files that are written and read beside the window, each in a thread of its own, so that the window goes on meanwhile."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gradstudio.core import files
from gradstudio.gui.message_bar import MessageBar
from gradstudio.session.run import Run

if TYPE_CHECKING:
    from gradstudio.session.curves import Curve

LAST_WRITING = 20.0  # seconds that a file gets to be written whole when the window closes

_drawing = threading.Lock()  # matplotlib's settings belong to the whole process


class Errand(threading.Thread):
    """Does something with a file and keeps what became of it: `done`, then `problem` (empty where it went well) and `details`."""

    failed = ""  # what is said of the file where it went wrong

    def __init__(self, path: Path, do: Callable[[], object]) -> None:
        super().__init__(name=f"file {path.name}", daemon=True)
        self.path = path
        self._do = do
        self.done = False
        self.problem = ""
        self.details = ""

    def run(self) -> None:
        try:
            self._do()
        except OSError as fault:
            self.problem = f"{self.path} {self.failed}: {(fault.strerror or str(fault)).lower()}"
        except Exception as fault:  # whatever a report or a foreign file stumbles over must not take the window with it
            self.problem = f"{self.path} {self.failed}: {type(fault).__name__}: {str(fault)[:200]}"
            self.details = traceback.format_exc()
        self.done = True

    def told(self, message: MessageBar) -> None:
        """It went well."""


class Writing(Errand):
    failed = "was not written"

    def told(self, message: MessageBar) -> None:
        message.show_news(f"Written: {self.path}", self.path)


class Reading(Errand):
    """Reads the curves of a file for `taken`."""

    failed = "cannot be read"

    def __init__(self, path: Path, taken: Callable[[list[Curve]], object]) -> None:
        self._taken = taken
        self._curves: list[Curve] = []
        super().__init__(path, self._read)

    def _read(self) -> None:
        from gradstudio.session import curves

        try:
            self._curves = curves.read(self.path)
        except curves.CurveError as fault:  # it names the file
            self.problem = str(fault)

    def told(self, message: MessageBar) -> None:
        self._taken(self._curves)


class Errands:
    """Those under way."""

    def __init__(self) -> None:
        self._under_way: list[Errand] = []

    def write(self, made: Callable[[], files.Content], path: str) -> None:
        """Write what is `made`, in the thread, to a file."""
        place = Path(path)
        self._begin(Writing(place, lambda: files.write_whole(place, made())))

    def export(self, run: Run, name: str, path: str) -> None:
        """Write one of a run's files, by the name that `gradstudio run --out` gives it: report.html, experiment.toml, train.py."""
        self.write(lambda: _content(run, name), path)

    def export_events(self, run: Run, folder: str) -> None:
        """Write a run's event file for TensorBoard into a folder."""

        def write() -> None:
            from gradstudio.session import tensorboard

            writing.path = tensorboard.export(run, Path(folder))

        writing = Writing(Path(folder), write)
        self._begin(writing)

    def read(self, path: Path, taken: Callable[[list[Curve]], object]) -> None:
        """Read a file of curves; they are for `taken`."""
        self._begin(Reading(path, taken))

    def tell(self, message: MessageBar) -> None:
        """Say what has become of those that are done."""
        for errand in [errand for errand in self._under_way if errand.done]:
            self._under_way.remove(errand)
            if errand.problem:
                message.show_error(errand.problem, errand.details)
            else:
                errand.told(message)

    def close(self) -> bool:
        """Wait for what was asked for and is nearly written. Gives whether no writing is left."""
        writings = [errand for errand in self._under_way if isinstance(errand, Writing)]
        for writing in writings:
            writing.join(LAST_WRITING)
        return not any(writing.is_alive() for writing in writings)

    def _begin(self, errand: Errand) -> None:
        self._under_way.append(errand)
        errand.start()


def _content(run: Run, name: str) -> str | bytes:
    from gradstudio.session import output, report  # matplotlib comes with them

    if name.startswith("report."):
        with _drawing:
            return report.content(run, Path(name).suffix[1:])
    return output.FILES[name](run)

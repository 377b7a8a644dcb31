"""Files that are written and read in the background, each in a thread of its own, so that the window goes on
meanwhile."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Generic, TypeVar

from gradstudio.core import files
from gradstudio.gui.services.message_bar import MessageBar
from gradstudio.session.record.run import Run

if TYPE_CHECKING:
    from gradstudio.session.files.curve_import import Curve
    from gradstudio.session.running.fix_trials import Trial

LAST_WRITING = 20.0  # seconds that a file gets to be written whole when the window closes

T = TypeVar("T")

_drawing = threading.Lock()  # matplotlib's settings belong to the whole process


class BackgroundJob(threading.Thread):
    """Does something with a file and keeps what became of it: `done`, then `problem` (empty where it succeeded) and
    `details`."""

    failed = ""  # how the message about a failure begins, behind the file's name

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
        except Exception as fault:  # a faulty report or a foreign file must not end the window
            self.problem = f"{self.path} {self.failed}: {type(fault).__name__}: {str(fault)[:200]}"
            self.details = traceback.format_exc()
        self.done = True

    def succeeded(self, message: MessageBar) -> None:
        """Say so, or use the result. Called on the GUI thread."""


class WriteJob(BackgroundJob):
    failed = "was not written"

    def succeeded(self, message: MessageBar) -> None:
        message.show_news(f"Written: {self.path}", self.path)


class Unreadable(Exception):
    """A file that cannot be read. One line for the user, which names the file."""


class ReadJob(BackgroundJob, Generic[T]):
    """Reads a file and hands what was in it to `use`."""

    failed = "cannot be read"

    def __init__(self, path: Path, load: Callable[[Path], T], use: Callable[[T], object]) -> None:
        self._load, self._use = load, use
        self._found: list[T] = []
        super().__init__(path, self._read)

    def _read(self) -> None:
        try:
            self._found.append(self._load(self.path))
        except Unreadable as fault:
            self.problem = str(fault)

    def succeeded(self, message: MessageBar) -> None:
        self._use(self._found[0])


class BackgroundJobs:
    """The jobs that are not reported yet."""

    def __init__(self) -> None:
        self._jobs: list[BackgroundJob] = []

    def write(self, make: Callable[[], files.Content], path: str) -> None:
        """Write a file whose content is made in the job's thread."""
        place = Path(path)
        self._begin(WriteJob(place, lambda: files.write_whole(place, make())))

    def draw(self, make: Callable[[], files.Content], path: str) -> None:
        """Write a file for which matplotlib draws, in the job's thread."""

        def made() -> files.Content:
            with _drawing:
                return make()

        self.write(made, path)

    def export(
        self, run: Run, name: str, path: str, line: Sequence[Run] = (),
        fixes: Mapping[str, Sequence[Trial]] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        """Write one of a run's files; `name` is what `gradstudio run --out` calls it, such as report.html, train.py.
        A report tells of the runs of its `line`, which it branched from, and of `fixes` that were tried."""
        if name == "train.py":
            self.write_program(lambda: str(_content(run, name, (), {})), path)
        else:
            self.write(lambda: _content(run, name, line, fixes), path)

    def write_program(self, make: Callable[[], str], path: str) -> None:
        """Write a program that is made in the job's thread, and beside it the data that it reads."""

        def write() -> None:
            from gradstudio.session.files import output

            output.write_program(make(), Path(path))

        self._begin(WriteJob(Path(path), write))

    def export_events(self, run: Run, folder: str) -> None:
        """Write a run's event file for TensorBoard into a folder."""

        def write() -> None:
            from gradstudio.session.files import tensorboard

            job.path = tensorboard.export(run, Path(folder))

        job = WriteJob(Path(folder), write)
        self._begin(job)

    def read_curves(self, path: Path, use: Callable[[list[Curve]], object]) -> None:
        """Read the curves of a file, then hand them to `use`."""
        self.read(path, _curves, use)

    def read(self, path: Path, load: Callable[[Path], T], use: Callable[[T], object]) -> None:
        """Read a file in the job's thread, then hand what was in it to `use`. `load` may raise Unreadable."""
        self._begin(ReadJob(path, load, use))

    def show_done(self, message: MessageBar) -> None:
        """Show what became of the jobs that are done."""
        for job in [job for job in self._jobs if job.done]:
            self._jobs.remove(job)
            if job.problem:
                message.show_error(job.problem, job.details)
            else:
                job.succeeded(message)

    def close(self) -> bool:
        """Wait until files are written; return whether none is left."""
        writing = [job for job in self._jobs if isinstance(job, WriteJob)]
        for job in writing:
            job.join(LAST_WRITING)
        return not any(job.is_alive() for job in writing)

    def _begin(self, job: BackgroundJob) -> None:
        self._jobs.append(job)
        job.start()


def _curves(path: Path) -> list[Curve]:
    from gradstudio.session.files import curve_import

    try:
        return curve_import.read(path)
    except curve_import.CurveError as fault:
        raise Unreadable(str(fault)) from None


def _content(run: Run, name: str, line: Sequence[Run], fixes: Mapping[str, Sequence[Trial]]) -> files.Content:
    from gradstudio.session.files import report, run_files  # matplotlib comes with them

    if name.startswith("report."):
        with _drawing:
            return report.content(run, Path(name).suffix[1:], line=line, fixes=fixes)
    return run_files.FILES[name](run)

"""Files that are written and read in the background, each in a thread of its own, so that the window goes on
meanwhile."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, TypeVar, cast

from gradstudio.core import files
from gradstudio.gui.services.message_bar import MessageBar
from gradstudio.gui.services.tasks import Cancelled, Task, Tasks
from gradstudio.session.record.run import Run

if TYPE_CHECKING:
    from gradstudio.session.files.curve_import import Curve
    from gradstudio.session.running.fix_trials import Trial

LAST_WRITING = 20.0  # seconds that a file gets to be written whole when the window closes
LAST_READING = 0.3  # seconds until what was cancelled then has ended

T = TypeVar("T")

_drawing = threading.Lock()  # matplotlib's settings belong to the whole process


class BackgroundJob(threading.Thread):
    """Does something with a file and keeps what became of it: `done`, then `problem` (empty where it succeeded) and
    `details`."""

    failed = ""  # how the message about a failure begins, behind the file's name

    def __init__(self, path: Path, do: Callable[[], object], task: Task) -> None:
        super().__init__(name=f"file {path.name}", daemon=True)
        self.path, self.task = path, task
        self._do = do
        self.cancelled = False
        self.done = False
        self.problem = ""
        self.details = ""

    def run(self) -> None:
        try:
            self.task.check()
            self._do()
        except Cancelled:
            self.cancelled = True
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
        if self.task.parts == 1:
            message.show_written(f"Written: {self.path}", self.path)
        elif self.task.over and not self.task.failed:  # or the reason of a failure stays
            message.show_written(f"Written: {self.task.parts:,} files into {self.path.parent}", self.path.parent)


class Unreadable(Exception):
    """A file that cannot be read. One line for the user, which names the file."""


class ReadJob(BackgroundJob, Generic[T]):
    """Reads a file and hands what was in it to `use`."""

    failed = "cannot be read"

    def __init__(self, path: Path, load: Callable[[Path], T], use: Callable[[T], object], task: Task) -> None:
        self._load, self._use = load, use
        self._found: list[T] = []
        super().__init__(path, self._read, task)

    def _read(self) -> None:
        try:
            self._found.append(self._load(self.path))
        except Unreadable as fault:
            self.problem = str(fault)
        self.task.check()

    def succeeded(self, message: MessageBar) -> None:
        self._use(self._found[0])


class BackgroundJobs:
    """The jobs that are not reported yet."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._jobs: list[BackgroundJob] = []

    def write(self, make: Callable[[], files.Content], path: str, task: Task | None = None) -> None:
        """Write a file whose content is made in the job's thread. It may be one part of a task."""
        place, task = Path(path), task or self._writing(path)
        self._begin(WriteJob(place, lambda: files.write_whole(place, _heedful(make(), task)), task))

    def draw(self, make: Callable[[], files.Content], path: str, task: Task | None = None) -> None:
        """Write a file for which matplotlib draws, in the job's thread. It may be one part of a task."""
        task = task or self._writing(path)

        def made() -> files.Content:
            with _drawing:
                task.check()  # it may have waited for long
                return make()

        self.write(made, path, task)

    def _writing(self, path: str) -> Task:
        return self._tasks.begin(f"Writing {Path(path).name}")

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

        self._begin(WriteJob(Path(path), write, self._writing(path)))

    def export_events(self, run: Run, folder: str) -> None:
        """Write a run's event file for TensorBoard into a folder. Cancelled, it leaves the folder as it was."""
        task = self._tasks.begin("Writing an event file")

        def write() -> None:
            from gradstudio.session.files import output
            from gradstudio.session.files.tensorboard import export

            contents = {Path(folder, name): content for name, content in export.event_file(run).items()}
            heedful = {path: _heedful(content, task) for path, content in contents.items()}
            (job.path,) = output.write_together(heedful)

        job = WriteJob(Path(folder), write, task)
        self._begin(job)

    def read_curves(self, path: Path, use: Callable[[list[Curve]], object]) -> None:
        """Read the curves of a file, then hand them to `use`."""
        self.read(path, _curves, use)

    def read(self, path: Path, load: Callable[[Path], T], use: Callable[[T], object], task: Task | None = None) -> None:
        """Read a file in the job's thread, then hand what was in it to `use`. `load` may raise Unreadable. `task`:
        what a person is told of it, where it is more than reading."""
        self._begin(ReadJob(path, load, use, task or self._tasks.begin(f"Reading {path.name}")))

    def show_done(self, message: MessageBar) -> None:
        """Show what became of the jobs that are done."""
        for job in [job for job in self._jobs if job.done]:
            self._jobs.remove(job)
            self._tasks.end_part(job.task)
            if job.cancelled:
                message.show_news(f"Cancelled: {job.task.words[:1].lower()}{job.task.words[1:]}.")
            elif job.problem:
                job.task.failed += 1
                message.show_error(job.problem, job.details)
            else:
                job.succeeded(message)

    def close(self) -> bool:
        """Wait until files are written, and cancel what is read or made; return whether nothing is left."""
        writing = [job for job in self._jobs if isinstance(job, WriteJob)]
        others = [job for job in self._jobs if not isinstance(job, WriteJob)]
        for job in others:
            job.task.cancel()
        for job in writing:
            job.join(LAST_WRITING)
        for job in others:
            job.join(LAST_READING)
        return not any(job.is_alive() for job in self._jobs)

    def _begin(self, job: BackgroundJob) -> None:
        self._jobs.append(job)
        job.start()


def _heedful(content: files.Content, task: Task) -> files.Content:
    """Return a content whose writing ends where the task is cancelled."""
    task.check()
    if not callable(content):
        return content
    write = content

    def heed(file: BinaryIO) -> None:
        write(cast("BinaryIO", _Heedful(file, task)))

    return heed


class _Heedful:
    """A file that takes nothing more once its task is cancelled."""

    def __init__(self, file: BinaryIO, task: Task) -> None:
        self._file, self._task = file, task

    def write(self, data: bytes) -> int:
        self._task.check()
        return self._file.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


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

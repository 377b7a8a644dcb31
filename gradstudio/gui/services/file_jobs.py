"""Files that are written and read as jobs of the window, which continues meanwhile."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, cast

from gradstudio.core import files
from gradstudio.gui.services.jobs import Cancelled, JobError, Jobs, Task
from gradstudio.gui.services.message_bar import MessageBar
from gradstudio.session.record.run import Run

if TYPE_CHECKING:
    from gradstudio.session.files.curve_import import Curve
    from gradstudio.session.running.remedy_trial import Trial

LOGS = (".json", ".jsonl", ".ndjson", ".wandb", ".db")  # of trainings; tables and TensorBoard's may contain only curves
CRASH = ".crash"  # suffix of crash files
T = TypeVar("T")

drawing = threading.Lock()  # matplotlib's settings belong to the whole process


class FileJobs:
    def __init__(self, jobs: Jobs, message: MessageBar) -> None:
        self._jobs, self._message = jobs, message

    def write(self, make: Callable[[], files.Content], path: str) -> None:
        """Write a file whose content is created in the job's thread."""
        self._write(Path(path), lambda task: write_file(make, Path(path), task))

    def draw(self, make: Callable[[], files.Content], path: str) -> None:
        """Write a file drawn by matplotlib, in the job's thread."""
        self._write(Path(path), lambda task: draw_file(make, Path(path), task))

    def export(
        self, run: Run, name: str, path: str, line: Sequence[Run] = (),
        fixes: Mapping[str, Sequence[Trial]] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        """Write one of a run's files; `name` is its name for `gradstudio run --out`, such as report.html, train.py. A
        report includes the runs of its `line`, which it branched from, and `fixes` that were tried."""
        make = _content_of(run, name, line, fixes)
        if name == "train.py":
            self.write_program(lambda: str(make()), path)
        elif name.startswith("report."):
            self.draw(make, path)
        else:
            self.write(make, path)

    def write_program(self, make: Callable[[], str], path: str) -> None:
        """Write a program that is created in the job's thread, and beside it the data that it reads."""

        def write(task: Task) -> None:
            from gradstudio.session.files import output

            output.write_program(make(), Path(path))

        self._write(Path(path), write)

    def export_events(self, run: Run, folder: str) -> None:
        """Write a run's event file for TensorBoard into a folder. Cancelling leaves the folder as it was."""

        def write(task: Task) -> Path:
            from gradstudio.session.files import output
            from gradstudio.session.files.tensorboard import export

            contents = {Path(folder, name): content for name, content in export.event_file(run).items()}
            (path,) = output.write_together({path: _heedful(content, task) for path, content in contents.items()})
            return path

        self._write(Path(folder), write, "Writing an event file")

    def read_curves(self, path: Path, use: Callable[[list[Curve]], object]) -> None:
        """Read the curves of a file, then pass them to `use`."""
        self.read(path, _curves, use)

    def read(self, path: Path, load: Callable[[Path], T], use: Callable[[T], object]) -> None:
        """Read a file in the job's thread, then pass its contents to `use`. `load` may raise JobError."""

        def read(task: Task) -> T:
            with telling(path, "cannot be read"):
                return load(path)

        self._jobs.start(f"Reading {path.name}", read, use)

    def _write(self, path: Path, write: Callable[[Task], Path | None], words: str = "") -> None:
        def work(task: Task) -> Path:
            with telling(path, "was not written"):
                return write(task) or path

        def on_done(written: Path) -> None:
            self._message.show_written(f"Written: {written}", written)

        self._jobs.start(words or f"Writing {path.name}", work, on_done, writes=True)


@contextmanager
def telling(path: Path, failed: str) -> Iterator[None]:
    """Convert any exception to a JobError that begins with the file and what has failed."""
    try:
        yield
    except (Cancelled, JobError):
        raise
    except OSError as fault:
        raise JobError(f"{path} {failed}: {files.reason(fault)}") from None
    except Exception as fault:  # a faulty report or a foreign file must not end the window
        text = f"{path} {failed}: {type(fault).__name__}: {str(fault)[:200]}"
        raise JobError(text, traceback.format_exc()) from None


def write_file(make: Callable[[], files.Content], path: Path, task: Task) -> None:
    """Write a file for a task; stops if the task is cancelled."""
    files.write_whole(path, _heedful(make(), task))


def draw_file(make: Callable[[], files.Content], path: Path, task: Task) -> None:
    """Write a file for a task, drawn by matplotlib."""
    with drawing:
        task.check()  # it may have waited for long
        content = make()
    files.write_whole(path, _heedful(content, task))


def _heedful(content: files.Content, task: Task) -> files.Content:
    """Return a content whose writing stops if the task is cancelled."""
    task.check()
    if not callable(content):
        return content
    write = content

    def heed(file: BinaryIO) -> None:
        write(cast("BinaryIO", _Heedful(file, task)))

    return heed


class _Heedful:
    """A file that accepts nothing more once its task is cancelled."""

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
        raise JobError(str(fault)) from None


def log_of(path: Path) -> Run:
    """Return the run in a log."""
    from gradstudio.session.files.curve_import import CurveError
    from gradstudio.session.files.log_reading import log_run

    try:
        return log_run.read(path, {}).run
    except CurveError as fault:
        raise JobError(str(fault)) from None


def _content_of(
    run: Run, name: str, line: Sequence[Run], fixes: Mapping[str, Sequence[Trial]]
) -> Callable[[], files.Content]:
    def make() -> files.Content:
        from gradstudio.session.files import report, run_files  # matplotlib comes with them

        if name.startswith("report."):
            return report.content(run, Path(name).suffix[1:], line=line, fixes=fixes)
        return run_files.FILES[name](run)

    return make

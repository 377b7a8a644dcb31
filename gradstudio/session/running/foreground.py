"""Training without a window: progress on stderr, until the run is over or Ctrl+C stops it."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from gradstudio.core.text import number, one_line
from gradstudio.session.record.run import Run
from gradstudio.session.record.snapshots import Snapshots
from gradstudio.session.running.worker import Stop, Worker

if TYPE_CHECKING:
    from gradstudio.session.running.fix_trials import Trials


def train(record: Run, *, progress: bool, snapshots: Snapshots | None = None) -> str:
    """Train a run in the worker's thread, and wait for it here, where Ctrl+C arrives. Return the traceback of what
    failed, "" if nothing did. `snapshots` take the run's snapshots and have those to go on from."""
    worker = Worker(record, snapshots=snapshots)
    with _stopping_on_ctrl_c(lambda: worker.send(Stop())):
        worker.start()
        if progress:
            _show_progress(record, worker)
        while worker.is_alive():
            worker.join(0.2)
    return worker.failure


def wait_for(trials: Trials, *, progress: bool) -> None:
    """Try fixes, and wait here until each has an outcome or Ctrl+C ends it. What is known by then stays."""
    with _stopping_on_ctrl_c(trials.stop):
        trials.start()
        if progress:
            _show_trials(trials)
        while trials.is_alive():
            trials.join(0.2)


@contextlib.contextmanager
def _stopping_on_ctrl_c(stop_it: Callable[[], object]) -> Iterator[None]:
    """Stop after the present step at the first Ctrl+C (or SIGTERM), and end the program at the second.

    This is a signal handler because a KeyboardInterrupt in Thread.join makes Python 3.11 take a living thread for a
    finished one.
    """
    told: list[int] = []

    def stop(number: int, frame: object) -> None:
        if told:
            raise KeyboardInterrupt
        told.append(number)
        stop_it()

    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # as by a shell for what runs in the background
    before = {
        number: signal.signal(number, stop) for number in (signal.SIGTERM, *(() if ignored else (signal.SIGINT,)))
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show_progress(record: Run, worker: Worker) -> None:
    """Draw a bar on stderr until the worker has ended."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[figures]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(one_line(record.title), total=record.experiment.run.steps, figures="")
        while worker.is_alive():
            worker.join(0.1)
            again, count = record.replayed, len(record.history)
            if again is not None:
                bar.update(task, description=f"rewinding to step {count:,}", total=count, completed=again)
            elif record.own > 0:
                row = record.history.row(count - 1)
                figures = f"loss {number(row['loss'])}  norm {number(row['grad_norm'])}"
                bar.update(
                    task,
                    description=one_line(record.title),
                    total=record.experiment.run.steps,
                    completed=count,
                    figures=figures,
                )


def _show_trials(trials: Trials) -> None:
    """Draw a bar on stderr until the trials have ended."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from gradstudio.session.running.fix_trials import in_words

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("trying fixes", total=len(trials.trials))
        while trials.is_alive():
            trials.join(0.1)
            done = sum(trial.outcome is not None for trial in trials.trials)
            told = f"{in_words(trials.now.remedy)}, {trials.progress}" if trials.now else "trying fixes"
            bar.update(task, description=told, completed=done)

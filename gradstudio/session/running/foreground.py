"""Training without a window: progress on stderr, until the run is over or Ctrl+C stops it. Output of a studio file goes
to stderr too, so that stdout contains only the answer of the command."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from gradstudio.core.text import number, one_line
from gradstudio.session.record.run import Run
from gradstudio.session.record.snapshots import Snapshots
from gradstudio.session.running import interrupts, streams
from gradstudio.session.running.slow_step import slow_step
from gradstudio.session.running.worker import Worker
from gradstudio.session.running.worker_commands import UNLIMITED, Stop

if TYPE_CHECKING:
    from gradstudio.session.running.backend import AnyWorker, RunFamily
    from gradstudio.session.running.fix_trials import Trials
    from gradstudio.session.running.interrupts import Interrupts


def train(
    record: Run, *, progress: bool, snapshots: Snapshots | None = None,
    began: Callable[[AnyWorker], object] | None = None, family: RunFamily | None = None,
) -> str:  # fmt: skip
    """Train a run in the worker's thread, and wait for it here, where Ctrl+C arrives: it ends the run after its current
    step, or abandons it if that takes too long. Return the traceback of a failure, "" if there is none. `snapshots`
    store the run's snapshots and supply those to continue from. `began` is called with the worker as it begins. A
    `family` has its own worker and snapshots."""
    worker: AnyWorker = Worker(record, snapshots=snapshots)
    if family is not None:
        worker = family.worker(record, paused=False, speed=UNLIMITED, before=None, twin=None, twin_knob="")
    own = record.experiment.studio_file is not None
    with streams.to_stderr(own=own), interrupts.stopping(lambda: worker.send(Stop())) as signals:
        signals.hasty |= own
        worker.start()
        if began is not None:
            began(worker)
        if progress:
            _show_progress(record, worker, signals)
        _wait(worker, signals)
        if worker.is_alive() and not worker.abandon_if_stuck():
            worker.abandon()
    return worker.failure


def wait_for(trials: Trials, *, progress: bool) -> None:
    """Try fixes, and wait here until each has an outcome or Ctrl+C ends it. Results so far stay."""
    own = trials.tried.experiment.studio_file is not None
    with streams.to_stderr(own=own), interrupts.stopping(trials.stop) as signals:
        signals.hasty |= own
        trials.start()
        if progress:
            _show_trials(trials, signals)
        _wait(trials, signals)
        if trials.is_alive():
            trials.abandon()


def _wait(thread: threading.Thread | AnyWorker, signals: Interrupts) -> None:
    """Wait for the end of a thread, or until its time is up."""
    while thread.is_alive() and not signals.overdue:
        thread.join(0.2)


def _show_progress(record: Run, worker: AnyWorker, signals: Interrupts) -> None:
    """Draw a bar on stderr until the worker has ended or its time is up."""
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
        while worker.is_alive() and not signals.overdue:
            worker.join(0.1)
            again, count = record.replayed, len(record.history)
            if again is not None:
                bar.update(task, description=f"rewinding to step {count:,}", total=count, completed=again)
            elif (seconds := slow_step(record)) is not None:
                bar.update(task, description=f"{one_line(record.title)}: no step for {seconds:,.0f} s")
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


def _show_trials(trials: Trials, signals: Interrupts) -> None:
    """Draw a bar on stderr until the trials have ended or their time is up."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from gradstudio.session.running.remedy_trial import in_words

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("trying fixes", total=len(trials.trials))
        while trials.is_alive() and not signals.overdue:
            trials.join(0.1)
            done = sum(trial.outcome is not None for trial in trials.trials)
            text = f"{in_words(trials.now.remedy)}, {trials.progress}" if trials.now else "trying fixes"
            bar.update(task, description=text, completed=done)

"""`gradstudio.watch(model, optimizer)`: one line in a script, from which on its training is watched."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.amp import GradScaler
from torch.optim import Optimizer

from gradstudio.core import files
from gradstudio.core.diagnosis.finding import Finding, Findings
from gradstudio.session.record.ranked_findings import ranked_findings
from gradstudio.watching.hooks.guard import say, say_once
from gradstudio.watching.notebook import end_runs_with_their_cells
from gradstudio.watching.recording.messenger import check
from gradstudio.watching.recording.run_facts import Script, running_script
from gradstudio.watching.recording.watched_run import WatchedRun
from gradstudio.watching.steps.watch_options import RECORD, OnNonfinite, OnSpike, Options
from gradstudio.watching.watcher import Watcher

if TYPE_CHECKING:
    from gradstudio.watching.steps.step_observer import Observer

_watcher: Watcher | None = None


class TrainingWatch:
    """A watched training. It closes itself at the end of the program."""

    def __init__(self, watcher: Watcher | None, observer: Observer | None) -> None:
        self._watcher, self._observer = watcher, observer

    @property
    def run(self) -> str | None:
        """The id of the run in the library; None before its first step. If the trained parameters have changed, it is
        that of the latest run."""
        watched_run = self._run()
        return watched_run.recorded_id if watched_run is not None else None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The current findings of the rules, causes first; or why the parameters cannot be measured."""
        watched_run = self._run()
        if self._observer is not None and self._observer.refused:
            return (_not_watched(self._observer.refused),)
        run = watched_run.run if watched_run is not None else None
        return Findings(ranked_findings(run)) if run is not None else Findings()

    def log(self, step: int | None = None, **figures: Any) -> None:
        """Record the script's own figures with the next row: rules read `val_loss`, `test_accuracy`, `reward` and `kl`,
        any other is a column. `step`: the script's own number of its next step."""
        known: dict[str, float] = {}
        for name, value in figures.items():
            try:
                known[name] = float(value)
            except (TypeError, ValueError):
                say_once(f"log: {name} is no number, and left out")
        if self._watcher is not None and self._observer is not None:
            self._watcher.log(self._observer, step, known)

    def _repr_html_(self) -> str:
        """Return the runs for a notebook cell: the findings, and the pictures of a report."""
        from gradstudio.session.files.report.cell import cell

        return cell([watched_run.run for watched_run in self.watched_runs if watched_run.run is not None])

    def widget(self) -> Any:
        """Return a live picture of the latest run for a notebook; it needs anywidget."""
        from gradstudio.watching.live_widget import live_widget

        watcher = self._watcher
        latest = lambda: watched_run.run if (watched_run := self._run()) is not None else None  # noqa: E731
        return live_widget(latest, lambda: watcher is None or watcher.closed)

    def close(self) -> None:
        """Stop watching, and write the rest."""
        if self._watcher is not None and self._observer is not None:
            self._watcher.leave(self._observer)

    @property
    def watched_runs(self) -> list[WatchedRun]:
        """Every run of this training: a change of the trained parameters begins a new one."""
        if self._watcher is None or self._observer is None:
            return []
        self._watcher.observers.join()
        observer = self._observer.joined or self._observer
        observer.deliver()
        return [run for run in self._watcher.runs if run.observer is observer]

    def _run(self) -> WatchedRun | None:
        return next(reversed(self.watched_runs), None)


def _not_watched(why: str) -> Finding:
    """Return the finding that represents a rejected training."""
    meaning = "Nothing is known of this training: that there are no other findings says nothing about it."
    return Finding("not_watched", "warning", "Not watched", 0, 0, (), why, meaning, ())


def watch(
    model: nn.Module,
    optimizer: Optimizer | None = None,
    *,
    scaler: GradScaler | None = None,
    name: str | None = None,
    library: str | os.PathLike[str] | None = None,
    on_nonfinite: OnNonfinite = "explain",
    every: int = 1,
    updates: bool = True,
    resume: str | None = None,
    to: Any = None,
    on_finding: Any = None,
    record: int = RECORD,
    record_budget: int | None = None,
    on_spike: OnSpike = None,
) -> TrainingWatch:
    """Watch the training of a model from now on, and write it into the run library as it goes. Without `optimizer`,
    every optimizer that trains the model is watched, and so are updates made by hand. `scaler` is optional, as loss
    scalers are observed anyway. `on_nonfinite`: what to do once a number is not finite: explain it, raise
    FloatingPointError before the update, skip the update, or ignore it. One of `every` steps becomes a row. Without
    `updates` the size of the updates is not measured, which saves a copy of the weights. `resume`: the run to continue.
    Findings and stalls are sent `to` "wandb", "tensorboard" or "mlflow", if the script uses it, and to `on_finding`: a
    function, a command that reads JSON from its standard input, or an Apprise URL. `record`: how many steps back a
    crash file goes, 0 to write none; `record_budget`: the bytes that it may use. `on_spike`: "skip" leaves out an
    update whose gradient norm is far above its median, "rewind" also restores the weights of an earlier step."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"gradstudio.watch wants a torch.nn.Module first, not {type(model).__name__}")
    if optimizer is not None and not isinstance(optimizer, Optimizer):
        raise TypeError(f"optimizer must be a torch.optim.Optimizer, not {type(optimizer).__name__}")
    check(on_finding, to)
    options = Options(
        on_nonfinite, every, updates, on_finding=on_finding, to=to, resume=resume, record=record,
        record_budget=record_budget, on_spike=on_spike,
    )  # fmt: skip
    try:
        watcher = the_watcher(Path(library) if library is not None else None)
        end_runs_with_their_cells(lambda: _watcher)
        return TrainingWatch(watcher, watcher.watch(model, optimizer, name or "", options))
    except Exception as fault:
        say(f"not watched: {type(fault).__name__}: {fault}")
        return TrainingWatch(None, None)


def current() -> Watcher | None:
    """Return the watcher of this process, if there is one."""
    return _watcher


def the_watcher(library: Path | None) -> Watcher:
    """Return the watcher of this process, creating it if there is none."""
    global _watcher
    if _watcher is None or _watcher.closed:
        _watcher = begin(library or files.user_library(), running_script(), False)
    return _watcher


def begin(library: Path, script: Script, every_optimizer: bool, options: Options | None = None) -> Watcher:
    """Watch this process from here on, and return its watcher."""
    global _watcher
    _watcher = Watcher(library, script, every_optimizer=every_optimizer, options=options)
    return _watcher

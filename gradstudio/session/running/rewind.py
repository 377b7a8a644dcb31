"""Rewinding: returning to the start of any step of a run, from the nearest snapshot by replaying the steps after it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from gradstudio.core.diagnosis.diagnosis import Diagnosis
from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.history import History
from gradstudio.core.rule_thresholds import all_rules
from gradstudio.session.record.run_writer import RunWriter
from gradstudio.session.record.snapshots import KeptSnapshot, Snapshots, same_kind

if TYPE_CHECKING:
    from gradstudio.engine.trainer import Trainer


class Rewinder:
    """Takes the snapshots of a run, and rewinds to them. Only the run's worker calls it."""

    def __init__(self, writer: RunWriter, snapshots: Snapshots) -> None:
        self._writer, self._run, self._snapshots = writer, writer.run, snapshots
        self._kept_at = 0.0  # seconds that the run had spent in steps, at the latest snapshot

    def due(self, seconds: float) -> bool:
        """Return whether a snapshot is due, after this many seconds in the run's steps."""
        return self._snapshots.due(seconds - self._kept_at)

    def keep_if_due(
        self, trainer: Trainer, diagnosis: Diagnosis, findings: Mapping[str, Finding], seconds: float
    ) -> None:
        """Take a snapshot if one is due, before anything changes for the next step. `seconds` were spent in the run's
        steps."""
        if trainer.step and not self.due(seconds):
            return
        from gradstudio.engine.runtime import out_of_memory
        from gradstudio.engine.snapshot import Snapshot

        started, self._kept_at = time.perf_counter(), seconds
        try:
            state = Snapshot.take(trainer)
        except (RuntimeError, MemoryError) as fault:
            if not out_of_memory(fault):
                raise
            return  # there is one fewer to rewind to
        snapshot = KeptSnapshot(
            self._run.owner(trainer.step), trainer.step, state, diagnosis.copy(), dict(findings), seconds
        )
        self._snapshots.add(snapshot, time.perf_counter() - started, self._run.ancestors)

    def stand(self, trainer: Trainer | None, stopped: Callable[[], bool]) -> Trainer:
        """Return a trainer at the point where the run continues, after its last row, or where it was stopped on the way
        there. `trainer` is one of the same family that can be brought there."""
        run, end = self._run, len(self._run.history)
        trainer, nearest = self._trainer_and_snapshot(trainer)
        diagnosis, findings = self._restore(trainer, nearest, stopped)
        changes = [change for change in run.timeline if change.step >= trainer.step]
        seconds = np.cumsum(run.history.column("step_seconds", 0, end)).tolist()
        for history in run.history.as_it_grew(trainer.step, end):
            step = trainer.step
            self._writer.replay(step)
            while changes and changes[0].step == step:
                change = changes.pop(0)
                trainer.change(change.knob, change.value)
            trainer.skip_batches(stopped)
            if stopped():
                return trainer
            row = next(trainer.steps())
            _follow(diagnosis, history, findings)
            if not _same(row.loss, history.value("loss", step)):
                self._writer.differs(step)
            self.keep_if_due(trainer, diagnosis, findings, seconds[step])
        for change in changes:
            trainer.change(change.knob, change.value)
        self._writer.replay(None)
        self._writer.resume(diagnosis, findings)
        return trainer

    def _trainer_and_snapshot(self, trainer: Trainer | None) -> tuple[Trainer, KeptSnapshot | None]:
        """Return a trainer of the run's kind, and the snapshot to begin from: without one, it is step 0 of a new
        trainer."""
        from gradstudio.engine.trainer import Trainer

        run, is_new = self._run, False
        if trainer is None or not same_kind(trainer.experiment, run.experiment):
            trainer, is_new = Trainer(run.experiment), True
        self._snapshots.fetch(run, trainer)
        nearest = self._snapshots.nearest(run, len(run.history))
        return trainer if nearest or is_new else Trainer(run.experiment), nearest

    def _restore(
        self, trainer: Trainer, nearest: KeptSnapshot | None, stopped: Callable[[], bool]
    ) -> tuple[Diagnosis, dict[str, Finding]]:
        """Bring the trainer to the snapshot. Return the diagnosis at that point, and its findings."""
        if nearest is None:
            diagnosis = Diagnosis(all_rules(), Progress.of(self._run.experiment))
            self.keep_if_due(trainer, diagnosis, {}, 0.0)
            return diagnosis, {}
        nearest.state.restore(trainer)
        self._kept_at = nearest.seconds
        if nearest.diagnosis is None:
            return self._diagnosis_until(nearest.step, stopped)
        return nearest.diagnosis.copy(), dict(nearest.findings)

    def _diagnosis_until(self, step: int, stopped: Callable[[], bool]) -> tuple[Diagnosis, dict[str, Finding]]:
        """Return the diagnosis before a step, and its findings."""
        diagnosis, findings = Diagnosis(all_rules(), Progress.of(self._run.experiment)), {}
        for history in self._run.history.as_it_grew(0, step):
            if stopped():
                break
            _follow(diagnosis, history, findings)
        return diagnosis, findings


def _follow(diagnosis: Diagnosis, history: History, findings: dict[str, Finding]) -> None:
    """Add the rules' findings for the latest row of a history."""
    findings.update((finding.rule, finding) for finding in diagnosis.look(history))


def _same(one: float, other: float) -> bool:
    """Return whether two numbers are equal; NaN equals NaN."""
    return one == other or (one != one and other != other)

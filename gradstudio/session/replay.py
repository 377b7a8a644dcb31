"""Standing before any step of a run again: from the nearest snapshot, and the steps after it made anew."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from gradstudio.core.history import History
from gradstudio.core.rules import Finding, Rule, all_rules
from gradstudio.session.run import Run
from gradstudio.session.snapshots import Kept, Snapshots, same_kind

if TYPE_CHECKING:
    from gradstudio.engine.trainer import Trainer


class Replay:
    """Takes the snapshots of a run, and goes back to them. Only the run's worker calls it."""

    def __init__(self, run: Run, snapshots: Snapshots) -> None:
        self._run, self._snapshots = run, snapshots
        self._kept_at = 0.0  # seconds of the run in steps, at the latest snapshot

    def due(self, seconds: float) -> bool:
        """Whether it is time for a snapshot, after so many seconds in the run's steps."""
        return self._snapshots.due(seconds - self._kept_at)

    def keep_if_due(self, trainer: Trainer, rules: list[Rule], findings: dict[str, Finding], seconds: float, history: History) -> None:
        """Take a snapshot where it is time for one, before anything is changed for the next step; `seconds` were spent in the run's steps,
        and `history` is what the rules were shown."""
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
            return  # there is one less to go back to
        kept = Kept(self._run.owner(trainer.step), trainer.step, state, copy.deepcopy(rules), dict(findings), seconds, copy.copy(history.progress))
        self._snapshots.add(kept, time.perf_counter() - started, self._run.ancestors)

    def stand(self, trainer: Trainer | None, stopped: Callable[[], bool]) -> Trainer:
        """A trainer that stands where the run goes on, behind its last row, or where it was stopped on the way there; `trainer` is one of
        the same family that can be brought there."""
        from gradstudio.engine.trainer import Trainer

        run, end = self._run, len(self._run.history)
        taken_over = trainer
        if trainer is None or not same_kind(trainer.experiment, run.experiment):
            trainer = taken_over = None  # free the model before the next one is built
            trainer = Trainer(run.experiment)
        self._snapshots.fetch(run, trainer)
        kept = self._snapshots.nearest(run, end)
        if kept is None and trainer is taken_over:
            trainer = taken_over = None
            trainer = Trainer(run.experiment)
        rules, findings, progress = all_rules(), {}, None
        if kept is not None:
            kept.state.restore(trainer)
            known = (copy.deepcopy(kept.rules), dict(kept.findings), copy.copy(kept.progress)) if kept.rules else self._seen_until(kept.step, stopped)
            rules, findings, progress = known
            self._kept_at = kept.seconds
        else:
            self.keep_if_due(trainer, rules, findings, 0.0, run.history.until(0))
        changes = [change for change in run.timeline if change.step >= trainer.step]
        seconds = np.cumsum(run.history.column("step_seconds", 0, end)).tolist()
        for history in run.history.as_it_grew(trainer.step, end):
            history.progress = history.progress or progress
            run.replayed = step = trainer.step
            while changes and changes[0].step == step:
                change = changes.pop(0)
                trainer.change(change.knob, change.value)
            if stopped():
                return trainer
            row = next(trainer.steps())
            _follow(rules, history, findings)
            if run.differs_at is None and not _same(row.loss, history.value("loss", step)):
                run.differs_at = step
            self.keep_if_due(trainer, rules, findings, seconds[step], history)
            progress = history.progress
        for change in changes:
            trainer.change(change.knob, change.value)
        run.replayed = None
        run.resume(rules, findings, progress)
        return trainer

    def _seen_until(self, step: int, stopped: Callable[[], bool]) -> tuple[list[Rule], dict[str, Finding], Any]:
        """The rules as they were before a step, what they had found, and what they share."""
        rules, findings, progress = all_rules(), {}, None
        for history in self._run.history.as_it_grew(0, step):
            if stopped():
                break
            _follow(rules, history, findings)
            progress = history.progress
        return rules, findings, progress


def _follow(rules: list[Rule], history: History, findings: dict[str, Finding]) -> None:
    """What the rules find in the latest row of a history."""
    for rule in rules if history.due or history.broken else [rule for rule in rules if rule.every_row]:  # as a run asks them
        if (finding := rule.update(history)) is not None:
            findings[finding.rule] = finding


def _same(one: float, other: float) -> bool:
    return one == other or (one != one and other != other)

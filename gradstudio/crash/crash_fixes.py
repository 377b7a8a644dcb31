"""Fixes tried on a recorded training: from its state on, over its batches, each with a single change."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from gradstudio.core.text import number, plural
from gradstudio.crash.change import NO_CHANGE, Change
from gradstudio.crash.offered_fixes import candidates, guards, is_far_above
from gradstudio.crash.recorded_pass import CallRaised
from gradstudio.crash.recorded_training import LoadedCrash, StepResult, Training, preserve_random_state, replay_steps
from gradstudio.crash.shrunk_batch import without_broken_examples
from gradstudio.session.record import run_outcome

ROUNDS = 3  # times that the recorded batches are repeated
LEAST = 12  # updates of a trial
MOST_GUARDS = 3  # number of calls that one fix keeps within bounds
MOST_LOSS = 2.0  # a fix with this many times the best loss comes after the others


@dataclass
class Trial:
    """The result of one fix. `broke_at` counts its updates; None if everything was finite."""

    change: Change
    updates: int = 0
    broke_at: int | None = None
    loss: float = math.nan
    update: float = math.nan
    learns: bool = True  # its loss did not rise
    fault: str = ""
    over: str = ""  # the batches it was tried on, if not those of the file

    @property
    def is_finite(self) -> bool:
        return self.broke_at is None and not self.fault

    @property
    def holds(self) -> bool:
        return self.is_finite and self.learns and self.updates > 0

    @property
    def words(self) -> str:
        name = self.change.name or "no change"
        if self.fault:
            return f"{name}: failed, {self.fault}"
        if self.broke_at is not None:
            return f"{name}: not finite at update {self.broke_at + 1:,}"
        if not self.updates:
            return f"{name}: no recorded batch is left to try it on"
        size = f", updates of {number(self.update)} of the weights" if math.isfinite(self.update) else ""
        how = "holds for" if self.learns else "finite, but its loss rises in"
        updates = f"{plural(self.updates, 'update', 'updates')}{self.over}"
        return f"{name}: {how} {updates}, loss {number(self.loss)}{size}"

    def as_json(self) -> dict[str, Any]:
        return {
            "fix": self.change.name, "held": self.holds, "updates": self.updates, "broke_at": self.broke_at,
            "loss": _finite(self.loss), "update": _finite(self.update), "lines": list(self.change.lines),
            "fault": self.fault, "words": self.words,
        }  # fmt: skip


class FixTrials(NamedTuple):
    """All trials of fixes, the best first, and the trial without a change."""

    trials: list[Trial]
    unchanged: Trial

    @property
    def words(self) -> str:
        held = sum(each.holds for each in self.trials)
        told = f"{held} of {plural(len(self.trials), 'fix', 'fixes')} hold"
        if self.unchanged.is_finite:
            return f"{told}; without a change it is finite here too"
        names = ", ".join(each.change.name for each in self.trials)
        return told if held else f"{told} ({names}): the harm was done before the recorded steps, or in the data"


def try_fixes(
    recorded: LoadedCrash, device: str = "cpu", seconds: float = math.inf, others: Sequence[LoadedCrash] = ()
) -> FixTrials:
    """Try every applicable fix. TimeoutError if that takes more `seconds`. `others` are the files of other ranks with
    the same step: they are tried on if a fix leaves out the only batch of this one."""
    end = time.monotonic() + seconds
    training = Training(recorded, device)
    born = replay_steps(training)
    unchanged = _trial(recorded, device, NO_CHANGE)
    trials: list[Trial] = []
    for each in candidates(recorded.structure, born):
        if time.monotonic() > end:
            raise TimeoutError
        if others and each.skipped.issuperset(step.number for step in recorded.structure.steps):
            over = f" over the batch of rank {others[0].structure.rank}"
            left = _trial(others[0], device, replace(each, skipped=frozenset()))
            trials.append(replace(left, change=each, over=over))
        else:
            trials.append(_with_more_guards(recorded, device, _trial(recorded, device, each)))
    best = min((each.loss for each in trials if each.holds), default=math.nan)

    def place(item: tuple[int, Trial]) -> tuple[Any, ...]:
        at, each = item
        worse = not each.loss <= best + (MOST_LOSS - 1) * abs(best)
        return (not each.is_finite, not each.learns, worse, at if each.is_finite else -(each.broke_at or 0))

    return FixTrials([each for _, each in sorted(enumerate(trials), key=place)], unchanged)


def _trial(recorded: LoadedCrash, device: str, change: Change) -> Trial:
    """Go through the recorded batches, from the recorded state on."""
    trial, steps = Trial(change), recorded.structure.steps
    recorded = without_broken_examples(recorded) if change.drops_examples else recorded
    made: list[StepResult] = []
    try:
        with preserve_random_state():
            training = Training(recorded, device, change)
            for place in range(max(ROUNDS * len(steps), LEAST)):
                step = steps[place % len(steps)]
                one = training.step(step)
                if step.number in change.skipped:
                    continue
                scaled = any(each.scale != 1 for each in step.passes)
                if not (math.isfinite(one.loss) and (scaled or math.isfinite(one.norm)) and math.isfinite(one.update)):
                    trial.broke_at = len(made)
                    break
                made.append(one)
    except CallRaised as fault:
        trial.fault = str(fault)[:100]
    except Exception as fault:  # from torch, for incompatible values
        trial.fault = f"{type(fault).__name__}: {' '.join(str(fault).split())[:100]}"
    trial.updates = len(made)
    if made:
        count = len(steps) - len(change.skipped)
        losses = np.array([each.loss for each in made])
        trial.loss = float(losses[-count:].mean())
        trial.update = statistics.median(each.update for each in made)
        before = [each.loss for each in steps[:-1] if isinstance(each.loss, float)]
        rises = run_outcome.rises(losses[:count], losses[-count:], least=1)
        trial.learns = not (rises or (before and is_far_above(trial.loss, before)))
    return trial


def _with_more_guards(recorded: LoadedCrash, device: str, trial: Trial) -> Trial:
    """Also keep the next broken value within bounds, if one call is not enough."""
    while trial.change.guards and not trial.is_finite and len(trial.change.guards) < MOST_GUARDS:
        try:
            born = replay_steps(Training(recorded, device, trial.change))
        except CallRaised:
            break
        more = next(guards(born), None)
        if more is None or more.guards[0] in trial.change.guards:
            break
        before = trial.change
        both = f"{before.name.removesuffix(' in bounds')} and {born.do.rpartition('.')[2]} in bounds"
        change = Change(both, (*before.lines, *more.lines), guards=(*before.guards, *more.guards))
        trial = _trial(recorded, device, change)
    return trial


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None

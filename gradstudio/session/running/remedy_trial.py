"""The trial of a remedy, before and after it was made: which remedies are tried, what each changes, what it achieved
and which did best. fix_trials.py makes the trials."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Literal

from gradstudio.core.diagnosis.offered_remedies import with_fitting_remedies
from gradstudio.core.diagnosis.progress import MOVED
from gradstudio.core.experiment import KNOBS, parse_assignment
from gradstudio.core.knobs import Value
from gradstudio.session.record.ranked_findings import ranked_findings
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_outcome import is_measured, warnings

MOST = 6  # remedies that are tried

Outcome = Literal["held", "broke again", "no effect", "failed", "not tried"]


@dataclass
class Trial:
    """The trial of one remedy, "" for no change. The thread that tries it fills it in; `outcome` comes last."""

    remedy: str
    from_step: int = 0
    run: Run | None = None
    broke_at: int | None = None  # the step
    nonfinite: bool = False  # it diverged; otherwise a run that stayed finite had its critical finding again
    loss: float | None = None  # mean of the last finite rows
    score: float | None = None  # the rank among trials that held: lower is better
    accuracy: float | None = None  # on the test set when the trial ended; None if not measured
    learns: bool = True  # its score did not rise
    useless: bool = False  # it held, but is no better than guessing
    seconds: float = 0.0
    message: str = ""  # why it failed
    outcome: Outcome | None = None

    @property
    def is_healed(self) -> bool:
        """Whether it held and learns. One that learns nothing, or gets worse, merely survives."""
        return self.outcome == "held" and self.learns and not self.useless

    @property
    def steps(self) -> int:
        """Number of steps that the trial made."""
        return 0 if self.run is None else max(len(self.run.history) - self.from_step, 0)


def candidates(run: Run) -> list[str]:
    """Return the remedies to try. A mistake in the loop comes before any knob that may hide it. Then the first of each
    cause, the most likely cause first, then the second of each, and so on. Remedies of explained findings follow, in
    case the cause is another. The last is "", no change."""
    causes = [finding for finding in ranked_findings(run) if finding.severity != "info"]
    rules = {finding.rule for finding in causes}
    explained = [
        with_fitting_remedies(finding, run.in_force, run.provenance)
        for finding in warnings(run)
        if finding.rule not in rules
    ]
    turns = (
        *zip_longest(*(finding.remedies for finding in causes)),
        *zip_longest(*(finding.remedies for finding in explained)),
    )
    remedies = sorted(dict.fromkeys(remedy for turn in turns for remedy in turn if remedy), key=_not_of_the_loop)
    return [*remedies[:MOST], ""]


def values(remedy: str) -> dict[str, Value]:
    """Return the knobs that a remedy sets."""
    return dict(map(parse_assignment, remedy.split()))


def acts_live(remedy: str) -> bool:
    """Return whether every knob of a remedy can change while a run is training, and has an effect then."""
    return all(KNOBS[name].live and name not in _AT_THE_START for name in values(remedy))


_AT_THE_START = ("schedule.warmup_steps",)  # knobs that can change at any step, but affect the first ones


def _not_of_the_loop(remedy: str) -> bool:
    """Return False for a remedy that fixes a mistake in the loop, so that those are sorted first."""
    return not remedy.startswith("mistakes.")


def in_words(remedy: str) -> str:
    """Return the remedy in words."""
    return ", ".join(part.replace("=", " = ") for part in remedy.split()) or "no change"


def ranking(trials: list[Trial]) -> list[Trial]:
    """Return the trials, the best first.

    First come those that held and learn: a fixed mistake in the loop before a knob that hides it; then those whose
    accuracy on the test set is within MOVED of the best, by how little they change; then the others by their accuracy.
    If none was measured, the loss at the same step takes its place, divided by loss.weight.

    Then come those whose loss rose; those that learn nothing; those that broke later than without a change, the latest
    first; those without an effect; and those that broke earlier."""
    unchanged = next((trial.broke_at for trial in trials if not trial.remedy), None)
    held = [trial for trial in trials if trial.is_healed]
    best = max((trial.accuracy for trial in held if is_measured(trial.accuracy)), default=-math.inf)

    def worth(trial: Trial) -> tuple[float, ...]:
        alike = is_measured(trial.accuracy) and trial.accuracy >= best - MOVED
        score = math.inf if trial.score is None else trial.score
        return (
            _not_of_the_loop(trial.remedy), not alike, *(_size(trial.remedy) if alike else (0, 0)),
            -trial.accuracy if is_measured(trial.accuracy) else 0.0, score,
        )  # fmt: skip

    def place(trial: Trial) -> tuple[float, ...]:
        broke = math.inf if trial.broke_at is None else trial.broke_at
        match trial.outcome:
            case "held":
                return (0, trial.useless, not trial.learns, *worth(trial))
            case "broke again" if trial.remedy and (unchanged is None or broke > unchanged):
                return (1, -broke)
            case "no effect":
                return (2, 0)
            case "broke again":
                return (2, 1) if not trial.remedy else (3, -broke)
            case "failed":
                return (4,)
        return (5,)

    return sorted(trials, key=place)


def as_json(trials: list[Trial]) -> list[dict[str, Any]]:
    """Return the trials in the form of a run's summary."""
    return [
        {name: getattr(trial, name) for name in ("remedy", "outcome", "from_step", "steps", "broke_at", "loss")}
        for trial in trials
    ]


def _size(remedy: str) -> tuple[int, int]:
    """Return how much a remedy changes: knobs, and whether it takes a restart."""
    return len(remedy.split()), not acts_live(remedy)

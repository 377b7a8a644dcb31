"""Trying fixes: a run goes on from its last healthy step, once for each remedy and once without a change.

Every trial has the same seed and batches. The remedies are ranked by what happened."""

from __future__ import annotations

import math
import threading
import time
import traceback
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Literal, TypeGuard

import numpy as np

from gradstudio.core.diagnosis.offered_remedies import fitting
from gradstudio.core.diagnosis.progress import MOVED, RISEN, Progress
from gradstudio.core.experiment import KNOBS, Experiment, parse_assignment
from gradstudio.core.history import LOOK_EVERY, History
from gradstudio.core.knobs import Value
from gradstudio.core.task_measures import why_it_need_not_fall
from gradstudio.core.text import plural
from gradstudio.session.record import branches
from gradstudio.session.record.ranked_findings import ranked
from gradstudio.session.record.run import Run
from gradstudio.session.record.snapshots import Kept, Snapshots
from gradstudio.session.running.run_driver import RunDriver

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gradstudio.engine.trainer import Trainer

MOST = 6  # remedies that are tried
HORIZON = 100  # steps of each trial, at the least
TIMES = 2  # a trial makes so many times the steps from its start to where the run broke, where that is more
EARLY = LOOK_EVERY  # a run that broke within its first steps may have had no healthy one
BEFORE = 20  # a trial of a run that stayed finite starts so many steps before its finding
LOOKED_FOR = 1000  # steps within which such a finding has to come again without a change
LAST = 20  # rows whose mean loss a trial is judged by

Outcome = Literal["held", "broke again", "no effect", "failed", "not tried"]


@dataclass
class Trial:
    """The trial of one remedy, "" for no change. The thread that tries it fills it in; `outcome` comes last."""

    remedy: str
    from_step: int = 0
    run: Run | None = None
    broke_at: int | None = None  # the step
    nonfinite: bool = False  # it diverged; otherwise a run that stayed finite had its critical finding again
    loss: float | None = None  # mean of the last rows that are finite
    score: float | None = None  # the rank among trials that held: the lower the better
    accuracy: float | None = None  # on the test set where the trial ended; None where that was not measured
    learns: bool = True  # its score did not rise
    useless: bool = False  # it held, and is no better than guessing
    seconds: float = 0.0
    message: str = ""  # why it failed
    outcome: Outcome | None = None

    @property
    def healed(self) -> bool:
        """Whether it held and learns. One that learns nothing, or gets worse, only survives."""
        return self.outcome == "held" and self.learns and not self.useless

    @property
    def steps(self) -> int:
        """Number of steps that the trial made."""
        return 0 if self.run is None else max(len(self.run.history) - self.from_step, 0)


def candidates(run: Run) -> list[str]:
    """Return the remedies to try. A mistake in the loop comes before any knob that may hide it. Then the first of each
    cause, the most likely cause first, then the second of each, and so on. Remedies of explained findings follow, in
    case the cause is another. The last is "", no change."""
    causes = [finding for finding in ranked(run) if finding.severity != "info"]
    rules = {finding.rule for finding in causes}
    explained = [
        fitting(finding, run.in_force, run.provenance)
        for finding in list(run.findings.values())
        if finding.severity != "info" and finding.rule not in rules
    ]
    turns = (
        *zip_longest(*(finding.remedies for finding in causes)),
        *zip_longest(*(finding.remedies for finding in explained)),
    )
    remedies = sorted(dict.fromkeys(remedy for turn in turns for remedy in turn if remedy), key=_not_of_the_loop)
    return [*remedies[:MOST], ""]


def broken(run: Run) -> bool:
    """Return whether the run diverged or has a critical finding."""
    return run.first_nonfinite_step is not None or any(
        finding.severity == "critical" for finding in list(run.findings.values())
    )


def starting_step(run: Run) -> int:
    """Return the step that the trials go on from: the last healthy one, or step 0 where the harm was done in the first
    EARLY steps; but no earlier than the last change before the run broke, so that every trial has that change."""
    broke = run.first_nonfinite_step
    if broke is None:
        critical = [
            finding.first_step
            for finding in (*ranked(run), *list(run.findings.values()))
            if finding.severity == "critical"
        ]
        broke = min(critical, default=len(run.history))
        step = max(broke - BEFORE, 0) if broke >= EARLY else 0
    else:
        step = (branches.last_healthy_step(run) or 0) if broke >= EARLY else 0
    return max([step, *(change.step for change in list(run.timeline) if change.step <= broke)])


def values(remedy: str) -> dict[str, Value]:
    """Return the knobs that a remedy sets."""
    return dict(map(parse_assignment, remedy.split()))


def acts_live(remedy: str) -> bool:
    """Return whether every knob of a remedy can change while a run goes on, and does something then."""
    return all(KNOBS[name].live and name not in _AT_THE_START for name in values(remedy))


_AT_THE_START = ("schedule.warmup_steps",)  # knobs that can change at any step, but act on the first ones


def _not_of_the_loop(remedy: str) -> bool:
    """Return False for a remedy that mends a mistake in the loop, so that those come first."""
    return not remedy.startswith("mistakes.")


def in_words(remedy: str) -> str:
    """Return the remedy as a person reads it."""
    return ", ".join(part.replace("=", " = ") for part in remedy.split()) or "no change"


def ranking(trials: list[Trial]) -> list[Trial]:
    """Return the trials, the best first.

    First come those that held and learn: a mended mistake in the loop before a knob that hides it; then those whose
    accuracy on the test set is within MOVED of the best, by how little they change; then the others by their accuracy.
    Where none was measured, the loss at the same step takes its place, divided by loss.weight.

    Then come those whose loss rose; those that learn nothing; those that broke later than without a change, the latest
    first; those without an effect; and those that broke earlier."""
    unchanged = next((trial.broke_at for trial in trials if not trial.remedy), None)
    held = [trial for trial in trials if trial.healed]
    best = max((trial.accuracy for trial in held if _known(trial.accuracy)), default=-math.inf)

    def worth(trial: Trial) -> tuple[float, ...]:
        alike = _known(trial.accuracy) and trial.accuracy >= best - MOVED
        score = math.inf if trial.score is None else trial.score
        return (
            _not_of_the_loop(trial.remedy), not alike, *(_size(trial.remedy) if alike else (0, 0)),
            -trial.accuracy if _known(trial.accuracy) else 0.0, score,
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
    """Return the trials as the summary of a run has them."""
    return [
        {name: getattr(trial, name) for name in ("remedy", "outcome", "from_step", "steps", "broke_at", "loss")}
        for trial in trials
    ]


def _known(accuracy: float | None) -> TypeGuard[float]:
    return accuracy is not None and math.isfinite(accuracy)


def _size(remedy: str) -> tuple[int, int]:
    """Return how much a remedy changes: knobs, and whether it takes a restart."""
    return len(remedy.split()), not acts_live(remedy)


class Trials(threading.Thread):
    """Tries one remedy after the other, with trainers of its own, so that whatever else trains is not disturbed. Any
    thread may read it."""

    def __init__(self, run: Run, snapshots: Snapshots, remedies: Iterable[str] | None = None) -> None:
        """`snapshots` of the run are read; nothing is added to them. `remedies` are tried instead of those that the
        run's findings offer."""
        super().__init__(name=f"training fixes of {run.id}", daemon=True)
        self.tried, self.step = run, starting_step(run)
        self.length = len(run.history)  # steps that the run had made when the trials began
        offered = candidates(run) if remedies is None else remedies
        # first without a change: it says what an effect is
        self.trials = [Trial(remedy) for remedy in dict.fromkeys(("", *offered))]
        self.now: Trial | None = None
        self.failure = ""  # the traceback of a fault of the program, for whoever wants the details
        self._finite = run.first_nonfinite_step is None
        self._begun = _begun_with(run)
        self._planned = tuple(sorted((*run.planned, *run.asked), key=lambda change: change.step))
        self._family, self._snapshots = snapshots, _Borrowed(snapshots)
        self._trainer: Trainer | None = None  # of the run's family; the next live remedy goes on with it
        self._stopping = False

    @property
    def over(self) -> bool:
        """True once every trial has an outcome."""
        return all(trial.outcome is not None for trial in self.trials)

    @property
    def ranked(self) -> list[Trial]:
        """The trials, the best first."""
        return ranking(self.trials)

    @property
    def end(self) -> int:
        """Number of steps after which a trial that did not break ends."""
        unchanged = self.trials[0]
        broke = self.tried.first_nonfinite_step if unchanged.broke_at is None else unchanged.broke_at
        if broke is None and unchanged.outcome is None:  # it is yet to be seen where the finding becomes critical again
            wanted = min(self.step + LOOKED_FOR, max(self.length, self.step + HORIZON))
        else:
            wanted = self.step + max(HORIZON, 0 if broke is None else TIMES * (broke + 1 - self.step))
        return min(wanted, self.tried.experiment.run.steps)

    @property
    def progress(self) -> str:
        """How far the present trial is, in words."""
        trial = self.now
        if trial is None or trial.run is None:
            return ""
        again, count = trial.run.replayed, len(trial.run.history)
        return f"rewinding to step {count:,}: {again:,}" if again is not None else f"step {count:,} of {self.end:,}"

    def restarted_with(self, remedy: str) -> Experiment:
        """Return the values with which a restart with the remedy begins; KnobError where they do not go together."""
        return self._begun.with_values(values(remedy))

    def run_with(self, remedy: str) -> Run:
        """Return a new run that goes on with the remedy: a branch, or one from step 0 where it acts on restart."""
        return branches.fork(self.tried, self.step) if acts_live(remedy) else self._from_the_start(remedy)

    def borrowed(self) -> Snapshots:
        """Return the snapshots of the family to go on from; nothing that is added to them reaches it."""
        return _Borrowed(self._family)

    @property
    def best(self) -> Trial | None:
        """The best fix so far that held and learns; None where none does."""
        first = self.ranked[0]
        return first if first.healed and first.remedy else None

    def stop(self) -> None:
        """Make no more steps, from any thread. What is known by then stays."""
        self._stopping = True

    def abandon(self) -> None:
        """Say that what has no outcome was not tried, though a step still holds the thread. Only for a program that
        ends right after."""
        for trial in self.trials:
            trial.outcome = trial.outcome or "not tried"

    def run(self) -> None:
        """Try one remedy after the other."""
        try:
            for trial in self.trials:
                if not self._stopping:
                    self._try(trial)
                    self.now = None
        finally:
            self.abandon()
            self._trainer = None  # free the model
            self._snapshots = _Borrowed(Snapshots())

    # ---- inside

    def _try(self, trial: Trial) -> None:
        """Try one remedy. Any exception makes the trial fail."""
        started = time.perf_counter()
        try:
            outcome = self._train(trial, values(trial.remedy))
        except Exception as fault:  # KnobError for values that do not go together, and what nobody thought of
            outcome, trial.message, self.failure = "failed", str(fault) or type(fault).__name__, traceback.format_exc()
        trial.seconds = time.perf_counter() - started
        trial.outcome = outcome

    def _train(self, trial: Trial, wanted: dict[str, Value]) -> Outcome:
        """Train with the remedy until it breaks or `end` is reached, and return the outcome."""
        live = acts_live(trial.remedy)
        run = self.run_with(trial.remedy)
        trial.from_step = self.step if live else 0
        trial.run, self.now = run, trial
        self._snapshots.wanted = True
        driver = RunDriver(run, self._snapshots)
        driver.begin(self._trainer if live else None, lambda: self._stopping)
        if live:
            self._keep(driver)
        self._snapshots.wanted = False  # where a trial breaks, nobody investigates
        if live and driver.outcome is None and not self._stopping:
            driver.change_as_planned()
            for name, value in wanted.items():
                driver.change(name, value)
        driver.train(lambda: self._goes_on(trial, driver))
        if driver.outcome is None and not self._stopping and run.first_nonfinite_step is None:
            trial.accuracy = driver.test_accuracy()
        driver.end(leaving=True)
        if trial.accuracy is None and run.accuracy is not None:
            trial.accuracy = run.accuracy
        if live:
            self._trainer = driver.trainer  # none where an error left it within a step
        return self._judge(trial, run, driver)

    def _goes_on(self, trial: Trial, driver: RunDriver) -> bool:
        """Return whether a trial goes on: it has not broken, and has steps to make."""
        driver.settle()  # its rows say where it ends
        run = driver.run
        if len(run.history) >= self.end or run.refusals or run.first_nonfinite_step is not None:
            return False
        if self._found_again(run) and trial.broke_at is None:
            trial.broke_at = len(run.history) - 1
            return bool(trial.remedy)  # which may take longer to act, and is judged at its end
        return True

    def _from_the_start(self, remedy: str) -> Run:
        """Return the run that a restart with the remedy would make."""
        return Run(self.tried.preset, self.restarted_with(remedy), self._planned)

    def _keep(self, driver: RunDriver) -> None:
        """Keep the state in which the trials begin, so that later trials are there at once."""
        run, trainer = driver.run, driver.trainer
        if trainer is None or trainer.step != self.step or run.replayed is not None:
            return
        from gradstudio.engine.snapshot import Snapshot

        state, owner, so_far = Snapshot.take(trainer), run.owner(self.step), driver.writer.so_far
        kept = Kept(owner, self.step, state, so_far.diagnosis.copy(), dict(so_far.findings), so_far.seconds)
        self._snapshots.add(kept, 0.0)

    def _found_again(self, run: Run) -> bool:
        """Return whether a run that stayed finite has a critical finding again. None of its critical findings began
        before the trials do."""
        return self._finite and any(finding.severity == "critical" for finding in run.findings.values())

    def _judge(self, trial: Trial, run: Run, driver: RunDriver) -> Outcome:
        """Fill in what the trial measured, and return its outcome."""
        losses = run.history.column("loss", trial.from_step)
        losses = losses[np.isfinite(losses)]
        trial.loss = float(losses[-LAST:].mean()) if len(losses) else None
        scores = _scores(run, trial.from_step, len(run.history))
        trial.score = float(scores[-LAST:].mean()) if len(scores) else None
        alike = trial.from_step >= LAST and not any(name.startswith("loss.") for name in values(trial.remedy))
        trial.learns = not _rises(
            _scores(run, trial.from_step - LAST, trial.from_step) if alike else scores[:LAST], scores[-LAST:]
        )
        if run.refusals or run.status == "failed":
            trial.message = run.refusals[0].text if run.refusals else run.message
            self.failure = driver.failure
            return "failed"
        if run.first_nonfinite_step is not None:
            trial.broke_at, trial.nonfinite = run.first_nonfinite_step, True
        elif self._found_again(run):
            trial.broke_at = len(run.history) - 1 if trial.broke_at is None else trial.broke_at
        elif self._stopping:
            return "not tried"
        else:
            state = run.rule_watch.diagnosis.progress.at(run.history)
            trial.broke_at = None
            trial.useless = _no_better_than_guessing(trial.accuracy, run.history, state)
            return "held"
        unchanged = self.trials[0].broke_at
        return (
            "no effect"
            if trial.remedy and unchanged is not None and abs(trial.broke_at - unchanged) <= 1
            else "broke again"
        )


def _begun_with(run: Run) -> Experiment:
    """Return the values at step 0, with what was changed by hand. A change that comes by itself comes again at its
    step, and not before."""
    planned = {*run.planned, *run.asked}
    return run.experiment.with_values(
        {change.knob: change.value for change in list(run.timeline) if change not in planned}
    )


class _Borrowed(Snapshots):
    """A family's snapshots to go on from. Trials add only the state in which they begin."""

    def __init__(self, family: Snapshots) -> None:
        super().__init__()
        self.wanted = True
        self._family = family

    def due(self, seconds: float) -> bool:
        return False

    def fetch(self, run: Run, trainer: Trainer) -> None:
        self._family.fetch(run, trainer)

    def nearest(self, run: Run, step: int) -> Kept | None:
        found = [
            kept
            for kept in (super().nearest(run, step), self._family.nearest(run, step))
            if kept is not None and self.wanted
        ]
        return max(found, key=lambda kept: kept.step, default=None)


def _no_better_than_guessing(accuracy: float | None, history: History, state: Progress) -> bool:
    """Return whether a trial that held has learned nothing: it stands still, and its accuracy on the test set is that
    of guessing or of the model before its first update."""
    if not _known(accuracy):
        return state.stuck
    above = state.above_guessing(accuracy, history.value("test_accuracy", 0))
    return above <= MOVED or (above <= RISEN and state.stuck)


def _told_by_accuracy(run: Run) -> bool:
    """Return whether the accuracy tells how the run does, and not its loss."""
    return bool(why_it_need_not_fall(run.experiment))


def _scores(run: Run, start: int, stop: int) -> np.ndarray:
    """Return how well the steps start to stop did, the lower the better, as far as that is finite."""
    if _told_by_accuracy(run):
        scores = -run.history.column("accuracy", start, stop)
    else:
        scores = run.history.column("loss", start, stop) / (run.in_force.loss.weight or 1.0)
    return scores[np.isfinite(scores)]


def _rises(first: np.ndarray, last: np.ndarray) -> bool:
    """Return whether the last scores lie above the first by more than their scatter explains. A single outlier counts
    for nothing."""
    if min(len(first), len(last)) < LAST:
        return False
    (low, middle, high), (_, end, _) = (np.percentile(scores, (25, 50, 75)) for scores in (first, last))
    return bool(end - middle > high - low)


def headline(trials: Trials) -> str:
    """Return how many of the fixes healed the run, in words."""
    held = [trial for trial in trials.ranked if trial.outcome == "held" and trial.remedy]
    healed = sum(trial.healed for trial in held)
    count = sum(trial.outcome is not None for trial in trials.trials if trial.remedy)
    others = f", {plural(len(held) - healed, 'only survives', 'only survive')}" if len(held) > healed else ""
    if held and not healed:
        return f"No tried fix learns, of {count}{others}"
    return f"{plural(healed, 'fix', 'fixes')} of {count} healed the run{others}"

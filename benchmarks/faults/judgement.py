"""One case: the runs it takes, and whether the findings are right. What is right follows from what was done to the run
and from how its baseline ends; nothing here asks a rule how it judges."""

from __future__ import annotations

import functools
import itertools
import math
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from gradstudio.commands import exit_codes
from gradstudio.core import presets
from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.experiment import Experiment, parse_assignment
from gradstudio.core.planned_changes import read_timeline
from gradstudio.session.course.drawn_faults.drawing_runs import LEARNED, Texts
from gradstudio.session.course.drawn_faults.kinds import DrawnFault, Kind, Part
from gradstudio.session.record.ranked_findings import in_order
from gradstudio.session.record.run import Run

KEPT = 0.8  # of the baseline's accuracy: that much is healthy or healed, and less is harm
NO_BETTER = 0.03  # above the accuracy of guessing: of no use
# By task: the best that can be had without looking at the input.
GUESSED = {
    "digits": 0.1, "sequential_digits": 0.1, "spirals": 0.5, "ring": 0.125, "pole": 0.05, "characters": 0.18,
    "adding": 0.08, "copy": 0.125,
}  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """How a run ended, without the run."""

    task: str
    steps: int
    finite: bool
    accuracy: float  # on the test set; 0 where it diverged
    findings: tuple[Finding, ...]  # causes first, then what they explain; no notes
    exit_code: int

    @property
    def learned(self) -> bool:
        return self.accuracy >= LEARNED[self.task]

    @property
    def useless(self) -> bool:
        return self.accuracy <= GUESSED[self.task] + NO_BETTER

    @property
    def critical(self) -> bool:
        return any(finding.severity == "critical" for finding in self.findings)


def trained(texts: Sequence[str], at: Sequence[str], seed: int) -> Outcome:
    """Train a run to its end, in this thread."""
    from gradstudio.session.running.worker import Worker

    made = experiment(texts, seed)
    run = Run(presets.Preset(id="benchmark", title="Benchmark", experiment=made), made, timeline(at, made))
    Worker(run).run()
    if run.status not in ("finished", "nonfinite"):
        raise RuntimeError(f"{texts} {at}: {run.status} {run.message}")
    finite = run.status == "finished"
    return Outcome(
        made.problem.task, len(run.history), finite, run.accuracy if finite and run.accuracy is not None else 0.0,
        tuple(finding for finding in in_order(run) if finding.severity != "info"), exit_codes.of_run(run),
    )  # fmt: skip


def experiment(texts: Sequence[str], seed: int) -> Experiment:
    return Experiment().with_texts(["run.device=cpu", "run.steps=200", f"run.seed={seed}", *texts])


def timeline(at: Sequence[str], made: Experiment) -> tuple[presets.Change, ...]:
    entries = []
    for text in at:
        step, _, assignment = text.partition(":")
        knob, value = parse_assignment(assignment)
        entries.append({"step": int(step), "knob": knob, "value": value})
    return read_timeline(entries, made)


@dataclass
class Result:
    """A case and what came of it. It says of what kind it is, and leaves the drawing of that kind behind."""

    group: str
    name: str
    healthy: bool
    seed: int
    drawn: DrawnFault
    twin: Outcome  # the baseline: the same run without its parts
    outcome: Outcome
    counts: bool
    healed: list[bool] = field(default_factory=list)  # by the first and by the second remedy

    @property
    def first_right(self) -> bool:
        """Whether the first cause is a name of the earliest fault."""
        start = min(part.since for part in self.drawn.parts)
        names = {name for part in self.drawn.parts if part.since == start for name in part.named}
        return bool(self.outcome.findings) and self.outcome.findings[0].rule in names

    @property
    def named(self) -> bool:
        """Whether each fault is among the findings."""
        found = {finding.rule for finding in self.outcome.findings}
        return all(found & set(part.named) for part in self.drawn.parts)

    @property
    def exit_code_due(self) -> bool:
        """Whether the exit code is that of such an end: 0 for a healthy run, 3 for NaN, 4 for a model of no use."""
        if self.healthy:
            return self.outcome.exit_code == exit_codes.FINISHED
        if not self.outcome.finite:
            return self.outcome.exit_code == exit_codes.DIVERGED
        return not self.outcome.useless or self.outcome.exit_code == exit_codes.CRITICAL

    @property
    def falsely_critical(self) -> bool:
        """Whether a healthy run of this case has a critical finding."""
        return (not self.healthy and self.twin.critical) or (self.healthy and self.counts and self.outcome.critical)

    @property
    def right(self) -> bool:
        if self.falsely_critical:
            return False
        return not self.counts or (self.exit_code_due and (self.healthy or (self.first_right and self.named)))


def changed(drawn: DrawnFault, parts: Sequence[Part]) -> tuple[Texts, Texts]:
    """Return the knobs and the timeline of a run with some of its parts."""
    texts = [*drawn.base, *itertools.chain.from_iterable(part.change for part in parts)]
    return texts, [text for part in parts for text in part.at]


def case(kind: Kind, seed: int, *, heal: bool = False) -> Result | None:
    """Make the runs of a case; None where the healthy run has not learned, so that there is nothing to compare with."""
    drawn = kind.draw(np.random.default_rng([zlib.crc32(kind.name.encode()), seed]))
    twin = trained(drawn.base, (), seed)
    if not twin.learned:
        return None
    outcome = trained(*changed(drawn, drawn.parts), seed) if drawn.parts else twin
    if kind.healthy:
        return Result(
            kind.group, kind.name, kind.healthy, seed, drawn, twin, outcome, outcome.learned and _kept(outcome, twin)
        )
    result = Result(
        kind.group, kind.name, kind.healthy, seed, drawn, twin, outcome, _counts(drawn, twin, outcome, seed)
    )
    if heal and result.counts and outcome.findings:
        _heal(result)
    return result


def _kept(outcome: Outcome, twin: Outcome) -> bool:
    return outcome.accuracy >= KEPT * twin.accuracy


def _counts(drawn: DrawnFault, twin: Outcome, outcome: Outcome, seed: int) -> bool:
    """Return whether each part is a fault: it is one by its nature, or the run is harmed and the part harms by itself,
    or the other does not; and the run has come to where it begins."""
    harmed = not _kept(outcome, twin)
    if any(outcome.steps <= part.since for part in drawn.parts):
        return False
    if len(drawn.parts) == 1:
        return harmed or drawn.parts[0].silent
    harms = functools.cache(lambda index: not _kept(trained(*changed(drawn, (drawn.parts[index],)), seed), twin))
    return all(
        part.silent or (harmed and (harms(index) or not harms(1 - index))) for index, part in enumerate(drawn.parts)
    )


def _heal(result: Result) -> None:
    """Try the first two remedies of the first cause, from the start."""
    for remedy in result.outcome.findings[0].remedies[:2]:
        result.healed.append(_heals(result, remedy))
        if result.healed[-1]:
            return


def _heals(result: Result, remedy: str) -> bool:
    """Return whether a run with this remedy is as good as its baseline. Where something else was done to it too, the first
    remedy of what is found then is added. A knob that a remedy sets is not turned by the timeline any more."""
    texts, at = changed(result.drawn, result.drawn.parts)
    for _ in result.drawn.parts:
        given = [*remedy.split()]
        names = {text.partition("=")[0] for text in given}
        texts = [*texts, *given]
        at = [text for text in at if text.partition(":")[2].partition("=")[0] not in names]
        healed = trained(texts, at, result.seed)
        if _kept(healed, result.twin):
            return True
        remedy = next((found.remedies[0] for found in healed.findings[:1] if found.remedies), "")
        if not remedy:
            return False
    return False


def cases(kind: Kind, first: int, count: int, *, heal: bool = False, until: float = math.inf) -> Iterator[Result]:
    """Yield so many cases that count, from this seed on, and those that do not; at most three draws for each, and none
    that begins after a time."""
    for seed in range(first, first + 3 * count):
        if time.time() > until:
            return
        result = case(kind, seed, heal=heal)
        if result is not None:
            yield result
            count -= result.counts
        if not count:
            return

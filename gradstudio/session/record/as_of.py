"""A run as it was after one of its steps: what was measured, changed and found by then, and nothing later."""

from __future__ import annotations

import copy
import time
from bisect import bisect_right
from collections.abc import Mapping
from operator import itemgetter

from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.history import History
from gradstudio.session.record.branches import Family
from gradstudio.session.record.run import Run

FEW = 5_000  # steps for which the findings of each one are kept; for longer runs, this many steps


def as_of(run: Run, step: int, findings: Mapping[str, Finding]) -> Run:
    """Return the run as it was after a step, for reading only; `findings` are those known by then."""
    broke = run.first_nonfinite_step if (run.first_nonfinite_step or 0) <= step else None
    view = copy.copy(run)
    vars(view).update(
        status="running",
        message="",
        replayed=None,
        step_now=None,
        accuracy=None,
        history=run.history.before(step + 1),
        timeline=[change for change in list(run.timeline) if change.step <= step],
        events=[event for event in list(run.events) if event.step <= step],
        compared=[each for each in list(run.compared) if each.step <= step],
        not_compared="",
        findings=dict(findings),
        first_nonfinite_step=broke,
        provenance=run.provenance if broke is not None else None,
        in_force=run.values_at(step),
    )
    return view


def family_as_of(family: Family, run: Run, step: int) -> tuple[Family, Run]:
    """Return the members that had branched off by a step, each as it was then; `run` is the one on view."""
    there = [each for each in family.members.values() if each is run or each.parent_step <= step]
    views = {each.id: as_of(each, step, {}) if len(each.history) > step + 1 else each for each in there}
    return Family(list(views.values())), views[run.id]


class KnownFindings:
    """The findings that were known at each step of a run: its rules are replayed on the rows, some at a time."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._diagnosis, self._seen = run.new_diagnosis(), run.history.before(0)
        self._findings: dict[str, Finding] = {}
        self._kept: list[tuple[int, Mapping[str, Finding]]] = []  # by the first step at which they held

    def work_to(self, step: int, seconds: float) -> bool:
        """Replay the rules up to a step, for `seconds` at most. Return whether they have reached it."""
        end, history = time.thread_time() + seconds, self._run.history
        while len(self._seen) <= step:
            if time.thread_time() > end:
                return False
            self._show(history, len(self._seen))
        return True

    def at(self, step: int) -> Mapping[str, Finding]:
        """Return the findings known after a step that the rules have reached, by rule. Findings that the run's own
        rules did not make are left out: a stored run lacks some of their inputs."""
        place = bisect_right(self._kept, step, key=itemgetter(0))
        findings = self._kept[place - 1][1] if place else {}
        return {rule: finding for rule, finding in findings.items() if rule in self._run.findings}

    def _show(self, history: History, step: int) -> None:
        self._seen.grow(history, history.went_nonfinite_at(step))
        news = {finding.rule: finding for finding in self._diagnosis.look(self._seen)}
        first = not self._findings.keys() >= news.keys()
        self._findings |= news
        if news and (first or step % max(len(history) // FEW, 1) == 0):
            self._kept.append((step, dict(self._findings)))

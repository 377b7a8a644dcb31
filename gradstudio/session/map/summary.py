"""What a map says, in sentences."""

from __future__ import annotations

from collections import Counter

from gradstudio.core.text import number, one_line, plural
from gradstudio.session.map import grid as grids
from gradstudio.session.map.grid import UNTRAINED
from gradstudio.session.map.journal import Stored
from gradstudio.session.map.outcome import OUTCOMES

_WORDS = {"learned": "learned", "stuck": "stayed at guessing", "diverged": "diverged", "failed": "failed"}


def in_words(stored: Stored) -> str:
    """Return the axes, how many cells were trained, their outcomes, the best cell and why cells failed, a line each."""
    plan, results = stored.plan, stored.results
    grid = grids.filled(plan, grids.measured(plan, results))
    counts = Counter(grid.outcomes.ravel().tolist())
    shares = [
        f"{100 * counts[index] / plan.cells:.3g} % {_WORDS[name]}"
        for index, name in enumerate(OUTCOMES)
        if counts[index]
    ]
    if counts[UNTRAINED]:
        shares.append(f"{100 * counts[UNTRAINED] / plan.cells:.3g} % not known yet")
    lines = [
        f"{one_line(plan.preset.title)}: {plan.x.label} by {plan.y.label}"
        + (f", for each {plan.by}" if plan.by else ""),
        f"{plural(len({job.spot for job in results}), 'cell', 'cells')} of {plan.cells:,} trained: {', '.join(shares)}",
    ]
    learned = {job: trained for job, trained in results.items() if trained.outcome == "learned"}
    if learned:
        best = min(learned, key=lambda job: (learned[job].reached, job))
        values = ", ".join(f"{name} = {value}" for name, value in plan.values_at(best.spot).items())
        lines.append(f"lowest loss: {number(learned[best].reached)} at {values}")
    messages = Counter(trained.message for trained in results.values() if trained.outcome == "failed")
    lines += [f"failed in {plural(count, 'run', 'runs')}: {message}" for message, count in messages.most_common(3)]
    return "\n".join(lines)

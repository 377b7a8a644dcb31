"""What a map says, in sentences."""

from __future__ import annotations

from collections import Counter

from gradstudio.core.text import duration, number, one_line, plural
from gradstudio.session.map import grid as grids
from gradstudio.session.map.axis import name_in_words
from gradstudio.session.map.grid import UNTRAINED, Grid
from gradstudio.session.map.journal import JournalContent
from gradstudio.session.map.map_plan import Job, Plan, Spot
from gradstudio.session.map.map_progress import Progress
from gradstudio.session.map.outcome import OUTCOMES, last_steps

ENDED = {"learned": "learned", "stuck": "stayed at guessing", "diverged": "diverged", "failed": "failed"}


def in_words(stored: JournalContent, grid: Grid | None = None) -> str:
    """Return the axes, how many cells were trained, their outcomes, the best cell and why cells failed, a line each.
    `grid`: the filled grid of the map, if it is already computed."""
    plan, results = stored.plan, stored.results
    grid = grid or grids.fill_gaps(plan, grids.measured_cells(plan, results))
    counts = Counter(grid.outcomes.ravel().tolist())
    shares = [
        f"{100 * counts[index] / plan.cells:.3g} % {ENDED[name]}"
        for index, name in enumerate(OUTCOMES)
        if counts[index]
    ]
    if counts[UNTRAINED]:
        shares.append(f"{100 * counts[UNTRAINED] / plan.cells:.3g} % not known yet")
    lines = [
        f"{one_line(plan.preset.title)}: {plan.x.words}, by {plan.y.words}"
        + (f", for each {name_in_words(plan.by)}" if plan.by else ""),
        f"{plural(len({job.spot for job in results}), 'cell', 'cells')} of {plan.cells:,} trained: {', '.join(shares)}",
    ]
    learned = {job: trained for job, trained in results.items() if trained.outcome == "learned"}
    if learned:
        best = min(learned, key=lambda job: (learned[job].reached, job))
        lines.append(
            f"lowest loss, {_mean(plan)}: {number(learned[best].reached)} at {plan.values_in_words(best.spot)}"
        )
    messages = Counter(trained.message for trained in results.values() if trained.outcome == "failed")
    lines += [f"failed in {plural(count, 'run', 'runs')}: {message}" for message, count in messages.most_common(3)]
    return "\n".join(lines)


def cell_in_words(stored: JournalContent, grid: Grid, spot: Spot) -> str:
    """Return what is known about a cell, as a sentence: its values, its outcome, its last step and its loss."""
    plan = stored.plan
    values = plan.values_in_words(spot)
    place = (spot.panel, spot.row, spot.column)
    if grid.outcomes[place] == UNTRAINED:
        return f"{values}: not known yet."
    outcome = OUTCOMES[int(grid.outcomes[place])]
    if not grid.trained[place]:
        return f"{values}: not trained itself; a trained cell near it {ENDED[outcome]}."
    if plan.seeds == 1:
        trained = stored.results[Job(spot, 0)]
        if trained.outcome == "failed":
            return f"{values}: failed: {trained.message}."
        mean = "" if trained.reached != trained.reached else f"; {_mean(plan)}: {number(trained.reached)}"
        return f"{values}: {ENDED[outcome]}, with a loss of {number(trained.loss)} at step {trained.step:,}{mean}."
    held = round(float(grid.held[place]) * plan.seeds)
    return (
        f"{values}: {held} of {plan.seeds} seeds held; it counts as {outcome}, with a loss of "
        f"{number(float(grid.losses[place]))} at step {round(float(grid.steps[place])):,} (medians)."
    )


def _mean(plan: Plan) -> str:
    """Return which steps the reached loss is averaged over."""
    return f"mean of the last {plural(last_steps(plan.experiment.run.steps), 'step', 'steps')}"


def progress_in_words(now: Progress, *, paused: bool) -> str:
    """Return the progress of a map that is being made."""
    if not now.level:
        return "Starting the processes that train…"
    left = f"; about {duration(now.seconds_left)} left in this level" if now.seconds_left else ""
    failed = f", {now.failed:,} failed" if now.failed else ""
    state = "Paused. " if paused else ""
    return f"{state}Level {now.level}: {now.done:,} of {now.of:,} runs{left}. {now.run:,} in all{failed}."

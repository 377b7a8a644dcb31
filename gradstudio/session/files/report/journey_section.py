"""The journey of a branch: how each run that it comes from went and broke, which fixes were tried there, what was
changed, and how it went on, all on one axis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
from matplotlib.axes import Axes

from gradstudio.core.text import number, percent, plural
from gradstudio.session.files.report import figure_data
from gradstudio.session.files.report.blocks import Block, Card, Plot, Prose, Section, Table, Tone
from gradstudio.session.files.report.figure_axis import log_axis
from gradstudio.session.files.report.overlay_figure import overlaid
from gradstudio.session.files.report.palette import LETTERS
from gradstudio.session.record.ranked_findings import ranked_findings
from gradstudio.session.record.run import Run
from gradstudio.session.running.investigation import sentence
from gradstudio.session.running.remedy_trial import Trial, in_words
from gradstudio.session.words.fix_results import describe_result
from gradstudio.session.words.story import headline, tone

EXPLODED = 1000  # times the median of all runs, above which a curve leaves the axis
Fixes = Mapping[str, Sequence[Trial]]  # the trials of fixes by the run that they start from


def journey(run: Run, line: Sequence[Run], fixes: Fixes) -> Section | None:
    """Return the story from the first run on; None for a run that is not a branch and has no tried fix. `line`: the
    runs that it branched from, as far as they are available."""
    if not run.parent:
        tried = tuple(_trial_blocks(fixes.get(run.id, ())))
        return Section("fixes", "Fixes that were tried", tried) if tried else None
    known = {each.id: each for each in line}
    path = [*run.ancestors, run.id] if run.ancestors else [run.parent, run.id]
    runs = [known.get(id) for id in path[:-1]] + [run]
    shown = [each for each in runs if each is not None and len(each.history)][-len(LETTERS) :]
    letters = {each.id: letter for each, letter in zip(shown, LETTERS, strict=False)} if len(shown) > 1 else {}
    blocks: list[Block] = []
    for place, each in enumerate(runs):
        if each is None:
            blocks.append(Prose(f"What the run {path[place]} did is not known here: it could not be read."))
        else:
            blocks.append(_card(each, letters.get(each.id, "")))
            blocks += _trial_blocks(fixes.get(each.id, ()))
        if place + 1 < len(runs):
            blocks.append(Prose(_went_on(runs[place + 1], path[place + 1])))
    if letters:
        traces = [figure_data.take(each) for each in shown]
        for column, title in (("loss", "Loss of the journey"), ("grad_norm", "Gradient norm of the journey")):
            draw = partial(overlaid, column=column, scale=_near, journey=True)
            blocks.append(Plot(f"journey-{column.replace('_', '-')}", title, "log", 1.9, draw, traces))
    return Section("journey", "The journey", tuple(blocks))


def _near(axes: Axes, values: np.ndarray) -> None:
    """Choose a log axis on which the runs that went on can be told apart, however high an explosion reached."""
    finite = values[np.isfinite(values)]
    log_axis(axes, np.minimum(finite, EXPLODED * np.median(finite)) if len(finite) else values)


def _card(run: Run, letter: str) -> Card:
    """Return how a run went: its end, its first cause, and where its first NaN was born."""
    lines = []
    causes = [finding for finding in ranked_findings(run) if finding.severity == "critical"]
    if causes:
        lines.append(f"{causes[0].title}, {causes[0].when}. {causes[0].evidence}")
    if run.provenance is not None:
        lines.append(sentence(run.provenance))
    if run.accuracy is not None and run.accuracy == run.accuracy:
        lines.append(f"On the test set {percent(run.accuracy)} were right at its end.")
    if not lines and len(run.history):
        lines.append(f"Its last loss was {number(run.history.value('loss', len(run.history) - 1))}.")
    state: Tone = tone(run)
    return Card(state, letter, run.title, headline(run), tuple(lines), ())


def _went_on(branch: Run | None, id: str) -> str:
    if branch is None:
        return f"From it the run {id} branched."
    return (
        f"It was set back to the start of step {branch.parent_step:,}, with {branch.what_changed}, and went on for "
        f"{plural(branch.own, 'step', 'steps')}."
    )


def _trial_blocks(trials: Sequence[Trial]) -> Iterator[Block]:
    rows = [
        (
            in_words(trial.remedy),
            str(trial.outcome) + (f" at step {trial.broke_at:,}" if trial.broke_at is not None else ""),
            f"{trial.steps:,}",
            describe_result(trial) or "–",
        )
        for trial in trials
        if trial.outcome is not None
    ]
    if rows:
        start = min(trial.from_step for trial in trials if trial.outcome is not None)
        yield Prose(f"Fixes were tried on the same batches, from step {start:,} on:")
        yield Table(("fix", "what came of it", "steps", "reached"), tuple(rows), (0.42, 0.24, 0.1, 0.24))

"""The report of a comparison: what differs between runs, and the result of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import gradstudio
from gradstudio.core.knobs import format_value
from gradstudio.core.text import join_with_and, plural
from gradstudio.session.files import run_files
from gradstudio.session.files.comparison import Comparison, compare
from gradstudio.session.files.report import figure_data
from gradstudio.session.files.report.blocks import Block, Card, Document, Fold, Key, KeyRow, Plot, Prose, Section, Table
from gradstudio.session.files.report.figure_axis import log2_axis, log_axis, plain_axis
from gradstudio.session.files.report.overlay_figure import overlaid
from gradstudio.session.files.report.palette import DASHES, LETTERS, SERIES
from gradstudio.session.files.report.setup_sections import command
from gradstudio.session.record.ranked_findings import ranked_findings
from gradstudio.session.record.run import Run
from gradstudio.session.words.story import headline, tell, tone

Runs = Sequence[Run]
_NAMED = 6  # knobs that the first paragraph names
_IN_THE_KEY = 3  # knobs shown beside a run's title


def document(runs: Runs) -> Document:
    """Return the report of these runs; ComparisonError if they cannot be compared."""
    comparison = compare(runs)
    titles = dict.fromkeys(run.title for run in runs)
    title = f"{next(iter(titles))}: {len(runs)} runs compared" if len(titles) == 1 else f"{len(runs)} runs compared"
    sections = tuple(section for make in SECTIONS if (section := make(runs, comparison)) is not None)
    return Document(title, _count_ends(runs), "", "", f"GradStudio {gradstudio.__version__}", sections)


def _count_ends(runs: Runs) -> str:
    """Return '2 finished, 1 diverged'."""
    counts = Counter(
        "diverged" if run.status == "nonfinite" else run.status if run.over else "still training" for run in runs
    )
    return ", ".join(f"{count} {what}" for what, count in counts.most_common())


def what_differs(runs: Runs, comparison: Comparison) -> Section:
    """Return the runs, the knobs that differ, and the step from which the losses differ."""
    rows = []
    for index, run in enumerate(runs):
        knobs = ", ".join(
            f"{setting.knob}={format_value(setting.values[index])}" for setting in comparison.settings[:_IN_THE_KEY]
        )
        text = " · ".join(part for part in (headline(run), knobs, run.id) if part)
        rows.append(KeyRow(LETTERS[index], SERIES[index], DASHES[index], run.title, text))
    names = [setting.knob for setting in comparison.settings]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    told = (
        f"They differ in {plural(len(names), 'knob', 'knobs')}: {', '.join(names[:_NAMED])}{more}."
        if names
        else "No knob differs between them."
    )
    return Section("what-differs", "What differs", (Key(tuple(rows)), Prose(" ".join([told, *_partings(comparison)]))))


def _partings(comparison: Comparison) -> list[str]:
    """Return up to which step the losses equal those of the first run to the last bit: a sentence for all runs that
    differ from the same step on."""
    parted: dict[int | None, list[str]] = {}
    for letter, member in zip(LETTERS[1:], comparison.members[1:], strict=False):
        if member.shared_steps:
            parted.setdefault(member.differs_at, []).append(letter)
    told = []
    for step, letters in parted.items():
        what = f"The loss of {join_with_and(letters)}"
        told.append(
            f"{what} equals that of A to the last bit in every common step."
            if step is None
            else f"{what} differs from that of A from step {step:,} on."
        )
    return told


def curves(runs: Runs, comparison: Comparison) -> Section | None:
    """Return a figure for each quantity, with all runs in it."""
    traces = [figure_data.take(run) for run in runs]
    if not any(map(len, traces)):
        return None
    blocks: list[Block] = [
        _plot(traces, "loss", "Loss", "mean over the step's batch, before the update; log", 2.3, log_axis),
        _plot(
            traces, "grad_norm", "Gradient norm", "of the true gradient: unscaled, before clipping; log", 2.1, log_axis
        ),
    ]
    if any(knobs.precision.dtype == "fp16" for trace in traces for _, _, knobs in trace.in_force):
        blocks.append(_plot(traces, "scale", "Loss scale", "multiplies the loss in fp16; log2", 1.5, log2_axis))
    blocks.append(_plot(traces, "lr", "Learning rate", "of every update", 1.4, plain_axis))
    return Section("curves", "Curves", tuple(blocks))


def _plot(
    traces: Sequence[figure_data.Trace], column: str, title: str, note: str, height: float, scale: Callable[..., None]
) -> Plot:
    return Plot(column.replace("_", "-"), title, note, height, partial(overlaid, column=column, scale=scale), traces)


def knobs(runs: Runs, comparison: Comparison) -> Section:
    """Return the knobs that differ between the runs."""
    if not comparison.settings:
        return Section("knobs", "Knobs that differ", (Prose("None: every knob is the same in all runs.", dim=True),))
    rows = tuple((setting.knob, *setting.texts()) for setting in comparison.settings)
    return Section("knobs", "Knobs that differ", (_table("knob", rows, len(runs), code=tuple(range(len(runs) + 1))),))


def figures(runs: Runs, comparison: Comparison) -> Section:
    """Return the figures of the runs, side by side."""
    rows = [(label, *texts) for label, texts in comparison.figure_texts() if label != "findings"]
    parted = ["–"]
    for member in comparison.members[1:]:
        parted.append("never" if member.differs_at is None else f"from step {member.differs_at:,}")
    rows.append(("another loss than A", *parted))
    return Section("figures", "Figures", (_table("figure", tuple(rows), len(runs)),))


def each_run(runs: Runs, comparison: Comparison) -> Section:
    """Return the course of every run in words, and its findings."""
    cards = []
    for letter, run in zip(LETTERS, runs, strict=False):
        findings = tuple(
            f"{finding.severity}: {finding.title}, {finding.when}. {finding.evidence}"
            for finding in ranked_findings(run)
        )
        cards.append(Card(tone(run), headline(run), f"{letter} · {run.title}", run.id, (tell(run), *findings), ()))
    return Section("runs", "The runs", tuple(cards))


def timeline(runs: Runs, comparison: Comparison) -> Section | None:
    """Return the changes of knobs during the runs."""
    rows = [
        (letter, f"{event.step:,}", event.text)
        for letter, run in zip(LETTERS, runs, strict=False)
        for event in run.changes
    ]
    return (
        Section(
            "timeline", "Changes during the runs", (Table(("run", "step", "change"), tuple(rows), (0.1, 0.14, 0.76)),)
        )
        if rows
        else None
    )


def surroundings(runs: Runs, comparison: Comparison) -> Section:
    """Return the facts of the environment: first those that differ."""
    differing = tuple((name, *values) for name, values in comparison.surroundings.items())
    alike = tuple((name, value) for name, value in runs[0].environment.items() if name not in comparison.surroundings)
    blocks: list[Block] = (
        [_table("fact", differing, len(runs))] if differing else [Prose("The same for all runs:", dim=True)]
    )
    if differing and alike:
        blocks.append(Prose("The same for all runs:", dim=True))
    if alike:
        blocks.append(Table(("fact", "value"), alike, (0.25, 0.75), code=(1,)))
    return Section("environment", "Environment", tuple(blocks))


def repeat(runs: Runs, comparison: Comparison) -> Section:
    """Return how to repeat the runs."""
    about = (
        "Saved under its name, each file gives its run again with gradstudio run A.toml: bit for bit on the CPU, "
        "with the same seed and device."
    )
    folds = [
        Fold(
            f"{letter}.toml",
            run_files.experiment_toml(run),
            f"{letter}: {command(run)}" if run.preset.bundled else f"{letter}.toml:",
            not run.preset.bundled,
        )
        for letter, run in zip(LETTERS, runs, strict=False)
    ]
    return Section("repeat", "How to repeat them", (Prose(about, dim=True), *folds))


def _table(what: str, rows: tuple[tuple[str, ...], ...], runs: int, code: tuple[int, ...] = ()) -> Table:
    """Return a table with a row for each fact and a column for each run."""
    first = 0.3 if runs <= 4 else 0.22
    return Table((what, *LETTERS[:runs]), rows, (first, *((1 - first) / runs for _ in range(runs))), code)


SECTIONS: tuple[Callable[[Runs, Comparison], Section | None], ...] = (
    what_differs, curves, knobs, figures, each_run, timeline, surroundings, repeat,
)  # fmt: skip

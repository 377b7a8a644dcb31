"""The sections of a report, in order. A section is a function of a run; it returns None if it has nothing to say."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from types import MappingProxyType

import gradstudio
from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.events import Event, Kind
from gradstudio.core.task_measures import has_test_set, measure
from gradstudio.core.text import number, percent, plural
from gradstudio.session.files.report import figure_data, layers_figure
from gradstudio.session.files.report import figures as plots
from gradstudio.session.files.report.blocks import Block, Card, Document, Plot, Prose, Section, Table, Tile, Tiles, Tone
from gradstudio.session.files.report.journey_section import Fixes, journey
from gradstudio.session.files.report.memory_section import memory
from gradstudio.session.files.report.ranks_section import ranks
from gradstudio.session.files.report.setup_sections import environment, knobs, repeat, script, script_section
from gradstudio.session.record.own_steps import own_step
from gradstudio.session.record.ranked_findings import ranked_findings
from gradstudio.session.record.run import MOST_ALIKE, Run
from gradstudio.session.record.run_figures import figures
from gradstudio.session.running.investigation import heading, sentence
from gradstudio.session.words.outcome_words import SEVERITY_TONES
from gradstudio.session.words.story import headline, loss_scale, tell, tone

_TIMELINE = {"loop": "each step calls {}", "knob_refused": "refused: {}"}  # text before and after an event
MOST_LOGGED = 8  # figures of the numbers that a script logs
_MOST_LISTED = 4  # events of one kind that are listed one by one


def what_happened(run: Run) -> Section:
    """Return the course of the run in words, and its figures."""
    values = figures(run)
    lost: Tone = "bad" if values.final_loss is not None and not math.isfinite(values.final_loss) else ""
    tiles = [
        Tile("loss at the start", number(values.initial_loss)),
        Tile("loss at the end", number(values.final_loss), lost),
        Tile("best loss", number(values.best_loss)),
        *([Tile(measure(run.experiment).label, percent(values.accuracy))] if _is_tested(run) else []),
        Tile("largest gradient norm", number(values.peak_grad_norm)),
        Tile("steps clipped", percent(values.clipped_share)),
        Tile("updates skipped", _count(values.skipped_steps), "warning" if values.skipped_steps else ""),
        Tile(
            "loss scale at the end", loss_scale(values.final_scale) if run.in_force.precision.dtype == "fp16" else "–"
        ),
        Tile("rows" if run.watched is not None else "steps", f"{values.steps:,}"),
        Tile("time in steps", "–" if values.seconds is None else f"{number(values.seconds)} s"),
    ]
    return Section("what-happened", "What happened", (Prose(tell(run)), Tiles(tuple(tiles))))


def _count(times: int | None) -> str:
    return "–" if times is None else f"{times:,}"


def _is_tested(run: Run) -> bool:
    return run.watched is None and has_test_set(run.experiment)


def findings(run: Run) -> Section:
    """Return the findings of the run, with their evidence and remedies, and where its first NaN or Inf was born."""
    cards = tuple(_card(finding) for finding in ranked_findings(run)) or (Prose("No rule fired.", dim=True),)
    birth = run.provenance
    if birth is not None:
        lines = tuple(line for line in (sentence(birth), birth.led_up) if line)
        cards += (Card("bad", "provenance", heading(birth), f"step {birth.step:,}", lines, ()),)
    return Section("findings", "Findings", cards)


def curves(run: Run) -> Section | None:
    """Return the figures: the measurements of every step."""
    trace = figure_data.take(run)
    if not len(trace):
        return None
    blocks: list[Block] = [
        Plot("loss", "Loss", "mean over the step's batch, before the update; log", 1.75, plots.loss, trace)
    ]
    if len(trace.measurements("grad_norm")[0]):
        note = "of the true gradient: unscaled; log"
        blocks.append(Plot("grad-norm", "Gradient norm", note, 1.75, plots.gradient_norm, trace))
    in_half = any(knobs.precision.dtype == "fp16" for _, _, knobs in trace.in_force)
    if in_half or (trace.measurements("scale")[1] != 1).any():
        blocks.append(Plot("scale", "Loss scale", "multiplies the loss in fp16; log2", 1.2, plots.loss_scale, trace))
    if len(trace.measurements("lr")[0]):
        blocks.append(Plot("lr", "Learning rate", "of every update", 1.1, plots.learning_rate, trace))
    for name in run.history.logged_names[:MOST_LOGGED]:
        draw = partial(plots.logged, name=name)
        blocks.append(Plot(f"logged-{name}", name, "as the script tells it", 1.1, draw, trace))
    if any(len(trace.measurements(name)[0]) for name in ("test_accuracy", "clip_cosine")):
        note = "of the test set; cosines of examples at the last layer, of clipping and of the update"
        blocks.append(Plot("directions", "Test accuracy, directions", note, 1.4, plots.directions, trace))
    if trace.layers:
        grouped = len(trace) / figure_data.CELLS
        note = "gradient norm, log colour" + (
            f"; each column is the largest of about {number(grouped, 2)} steps" if grouped > 1 else ""
        )
        blocks.append(
            Plot(
                "layers",
                "Layers × steps",
                note,
                layers_figure.height(len(trace.layers)),
                layers_figure.layers_by_steps,
                trace,
            )
        )
    if trace.changes:
        blocks.append(Prose("Dashed lines are knob changes, numbered as in the timeline.", dim=True))
    return Section("curves", "Curves", tuple(blocks))


def _events(run: Run) -> list[Event]:
    """Return the events of the run; of its changes, only those that took effect."""
    changes = {(change.step, change.knob): change for change in run.changes}
    heard = {(event.step, event.knob): event for event in list(run.events) if event.kind == "knob_changed"}
    told: list[Event] = []
    for event in list(run.events):
        place = (event.step, event.knob)
        if event.kind != "knob_changed":
            told.append(event)
        elif event is heard.get(place) and place in changes:
            told.append(changes[place])
    return told


_ALIKE: dict[Kind, str] = {
    "step_skipped": "updates that the loss scaler skipped",
    "outlier": "batches replaced by noise",
    "nan_batch": "batches that gave a NaN or Inf",
}


def _summed_up(same: list[Event]) -> str:
    """Return many events of one kind in a few words. A run keeps only the first MOST_ALIKE."""
    text, last = f"{len(same):,} {_ALIKE[same[0].kind]}", f"{same[-1].step:,}"
    if len(same) < MOST_ALIKE:
        return f"{text}, the last at step {last}"
    return f"{text} up to step {last}; later ones are not listed"


def timeline(run: Run) -> Section:
    """Return everything that happened to the run; changes of knobs are numbered as in the figures."""
    events, count, rows = _events(run), 0, []
    alike = {kind: [event for event in events if event.kind == kind] for kind in _ALIKE}
    for event in sorted(events, key=lambda event: event.step):
        same = alike.get(event.kind, [])
        if len(same) > _MOST_LISTED:
            if event is same[0]:
                rows.append(("", f"{event.step:,}", _summed_up(same)))
            continue
        count += event.kind == "knob_changed"
        text = _TIMELINE.get(event.kind, "{}").format(event.text)
        step = f"{own_step(run.history, event.step):,}"
        rows.append((str(count) if event.kind == "knob_changed" else "", step, text))
    if not count:
        return Section("timeline", "Timeline", (Table(("step", "what"), tuple(row[1:] for row in rows), (0.12, 0.88)),))
    return Section(
        "timeline",
        "Timeline",
        (Table(("step", "change", "what"), tuple((row[1], row[0], row[2]) for row in rows), (0.12, 0.12, 0.76)),),
    )


def note(text: str) -> Section | None:
    """Return the user's note on the run."""
    return (
        Section("note", "Note", tuple(Prose(line) for line in text.splitlines() if line.strip()))
        if text.strip()
        else None
    )


SECTIONS: tuple[Callable[[Run], Section | None], ...] = (
    what_happened,
    findings,
    curves,
    ranks,
    timeline,
    memory,
    script_section,
    knobs,
    environment,
    repeat,
    script,
)


def document(
    run: Run, noted: str = "", more: Sequence[Section] = (), line: Sequence[Run] = (),
    fixes: Fixes = MappingProxyType({}),
) -> Document:  # fmt: skip
    """Return the report of a run: every section that has something to say, the user's note after the first, then the
    journey from the runs of its `line` with the `fixes` that were tried, and `more` sections after the curves."""
    made = [section for make in SECTIONS if (section := make(run)) is not None]
    after = 1 + max((place for place, section in enumerate(made) if section.id == "curves"), default=0)
    first, *others = [*made[:after], *more, *made[after:]]
    sections = [first, *filter(None, [note(noted), journey(run, line, fixes)]), *others]
    return Document(
        run.title,
        headline(run),
        tone(run),
        run.preset.summary,
        f"{run.id} · GradStudio {gradstudio.__version__}",
        tuple(sections),
    )


def _card(finding: Finding) -> Card:
    layers = finding.layers[:4]
    more = f" and {plural(len(finding.layers) - 4, 'other', 'others')}" if len(finding.layers) > 4 else ""
    where = f"{finding.when} · {', '.join(layers)}{more}" if layers else finding.when
    lines = tuple(line for line in (finding.evidence, finding.meaning) if line)
    return Card(SEVERITY_TONES[finding.severity], finding.severity, finding.title, where, lines, finding.remedies)

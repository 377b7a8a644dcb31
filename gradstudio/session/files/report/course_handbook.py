"""The handbook: the lessons of many presets as one document, in the recommended order, with the curves of real runs
(core/gallery.py) and the answers to their questions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib.axes import Axes

import gradstudio
from gradstudio.core import gallery, measure
from gradstudio.core.knobs import format_value
from gradstudio.core.lesson import LessonStep
from gradstudio.core.presets import Preset
from gradstudio.core.text import plural
from gradstudio.session.course.formula import why_not_drawn
from gradstudio.session.files.report.blocks import Block, Card, Document, Formula, Plot, Prose, Section, Table
from gradstudio.session.files.report.figure_axis import log_axis
from gradstudio.session.files.report.figures import Colours, frame, key
from gradstudio.session.files.report.palette import DASHES, SERIES

HEIGHT = 1.9  # inches of a figure
STANDS, HEALED = "as it stands", "with the fix"


def document(presets: Sequence[Preset]) -> Document:
    """Return the lessons of these presets as one document. Without a picture from real runs a lesson has no figure."""
    chosen = gallery.in_order(list(presets))
    titles = {preset.id: preset.title for preset in chosen}
    minutes = sum(gallery.minutes(preset) for preset in chosen)
    return Document(
        title="GradStudio: handbook of the lessons",
        state=plural(len(chosen), "lesson", "lessons"),
        tone="",
        summary="Each lesson breaks a training run, says why it broke, and heals it. All of them take about "
        f"{max(0.1, round(minutes / 60, 1)):g} hours.",
        about=f"GradStudio {gradstudio.__version__}. The figures are losses of real runs.",
        sections=tuple(_lesson(number, preset, titles) for number, preset in enumerate(chosen, 1)),
    )


def _lesson(number: int, preset: Preset, titles: dict[str, str]) -> Section:
    about = f"{preset.group.capitalize()} · {preset.level} · about {gallery.minutes(preset)} min · "
    about += f"gradstudio --preset {preset.id}"
    if before := [titles[each] for each in preset.after if each in titles]:
        about += f" · after {', '.join(before)}"
    blocks: list[Block] = [Prose(about, dim=True), Prose(preset.summary), *_figure(preset), *_knobs(preset)]
    for place, step in enumerate(preset.lesson, 1):
        blocks += _step(place, step)
    blocks += _promise(preset)
    blocks += _notes(preset)
    return Section(preset.id, f"{number}. {preset.title}", tuple(blocks))


def _figure(preset: Preset) -> Iterator[Block]:
    picture = gallery.picture(preset)
    if picture is not None:
        note = f"{STANDS}: {_end_in_words(picture.broken.status)}" + (
            f"; {HEALED}: {_end_in_words(picture.healed.status)}" if picture.healed else ""
        )
        yield Plot(f"loss-{preset.id}", "Loss", note, HEIGHT, _draw, picture)


def _draw(axes: Axes, picture: gallery.Picture, colours: Colours) -> None:
    curves = [(STANDS, picture.broken), *([(HEALED, picture.healed)] if picture.healed else [])]
    values = [np.array([np.nan if each is None else each for each in curve.loss]) for _, curve in curves]
    shown = np.concatenate(values)
    if (shown > 0).any():
        log_axis(axes, np.where(shown > 0, shown, np.nan))
    frame(axes, gallery.POINTS, colours)
    axes.set_xticks([0, gallery.POINTS - 1], ["first step", "last"])
    lines = []
    for place, ((name, curve), each) in enumerate(zip(curves, values, strict=True)):
        colour = colours[SERIES[place]]
        line = axes.plot(each, color=colour, linewidth=1.2, dashes=DASHES[place] or (None, None), label=name)[0]
        lines.append(line)
        if curve.status == "nonfinite" and np.isfinite(each).any():
            last = int(np.flatnonzero(np.isfinite(each))[-1])
            axes.plot([last], [each[last]], linestyle="none", marker="x", markersize=6, color=colours["bad"])
    key(axes, lines, colours, length=3.2)


def _knobs(preset: Preset) -> Iterator[Block]:
    rows = [(name, format_value(value)) for name, value in preset.experiment.changed_knobs().items()]
    rows += [(f"{each.knob} from step {each.step:,} on", format_value(each.value)) for each in preset.timeline]
    if rows:
        yield Table(("Knob", "Value"), tuple(rows), (0.6, 0.4), code=(0, 1))


def _step(place: int, step: LessonStep) -> Iterator[Block]:
    lines = [step.text]
    if step.predict:
        lines += [f"{letter}. {choice.text}" for letter, choice in zip("ABCDEF", step.predict, strict=False)]
        lines.append("The run tells which one is right.")
    if step.explain:
        asked = step.explain
        lines.append(f"Read off: {measure.measure(asked.measure).words}, within {100 * asked.tolerance:g} %.")
    drawn = bool(step.formula) and not why_not_drawn(step.formula)
    if step.formula and not drawn:
        lines.append(f"Formula: {step.formula}")
    if step.paper:
        lines.append(f"{step.paper.text}: {step.paper.url}")
    if step.hint:
        lines.append(f"Hint: {step.hint}")
    kind = "Predict" if step.predict else "Explain" if step.explain else "Do"
    yield Card("dim", kind, f"Step {place}", ", ".join(step.knobs), tuple(lines), ())
    if drawn:
        yield Formula(step.formula)


def _promise(preset: Preset) -> Iterator[Block]:
    promise = preset.promise
    if promise is None:
        return
    if promise.fix:
        yield Prose(f"Heals it: {', '.join(promise.fix)}.")
    if promise.wrong_fixes:
        yield Prose(f"Does not help: {'; '.join(' with '.join(each) for each in promise.wrong_fixes)}.", dim=True)


def _notes(preset: Preset) -> Iterator[Block]:
    """Yield the teacher's notes, as one card."""
    notes = preset.notes
    if notes is None:
        return
    lines = [f"Needs: {notes.needs}"] if notes.needs else []
    lines += [f"Point at: {each}" for each in notes.point_at]
    for each in notes.questions:
        lines += [f"“{each.ask}”", each.answer]
    yield Card(
        "dim", "For the teacher", "Notes", f"{notes.minutes} min in class" if notes.minutes else "", tuple(lines), ()
    )


def _end_in_words(status: str) -> str:
    return {"nonfinite": "diverges", "finished": "reaches its end", "failed": "fails"}.get(status, status)

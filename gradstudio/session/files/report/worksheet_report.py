"""A worksheet as a document with the curves of its runs, and the table of a class."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

import gradstudio
from gradstudio.core import measure
from gradstudio.core.assignment import Assignment
from gradstudio.core.exercise import Curves, Exercise, Question, Study
from gradstudio.core.knobs import format_value
from gradstudio.core.text import number, percent, plural, shorten
from gradstudio.core.unknown import known_mask
from gradstudio.session.course import questions
from gradstudio.session.course.exam_taking import AnswerSheet
from gradstudio.session.course.grading import Grade, GradedAnswer
from gradstudio.session.course.worksheet import Worksheet
from gradstudio.session.files.report.blocks import Block, Card, Document, Plot, Prose, Section, Table
from gradstudio.session.files.report.figure_axis import log_axis, plain_axis, step_axis
from gradstudio.session.files.report.figures import Colours, frame, key
from gradstudio.session.files.report.palette import DASHES, SERIES
from gradstudio.session.record.run import Run

HEIGHT = 2.4  # inches of a figure
MOST_POINTS = 2000  # of a curve on paper
SENTENCE = 4  # words of an answer that two students are unlikely to write identically by chance


class HandedIn(NamedTuple):
    """A worksheet of a class. `fault`: why it could not be read, "" if it could."""

    file: str
    sheet: Worksheet | AnswerSheet | None
    grade: Grade | None
    fault: str = ""


def document(sheet: Worksheet, exercise: Exercise, runs: Mapping[str, Run], peaks: Mapping[str, str]) -> Document:
    """Return a worksheet that was handed in. `runs` by name; `peaks`: memory use of each, if requested."""
    answered = [sheet.answers.get(f"q{place}", "") for place in range(1, len(exercise.question) + 1)]
    done = sum(bool(answer.strip()) for answer in answered)
    return Document(
        title=f"{exercise.title}: {sheet.name}",
        state=f"{done} of {plural(len(answered), 'question', 'questions')} answered",
        tone="good" if done == len(answered) else "",
        summary=exercise.text,
        about=f"GradStudio {gradstudio.__version__}. The runs are {sheet.name}'s own, with seed {sheet.seed}.",
        sections=(
            Section("runs", "Runs", (_table(exercise, runs, peaks), *_pairs(exercise, runs))),
            *_figures(exercise, runs),
            Section("answers", "Answers", tuple(_answers(exercise.question, answered))),
        ),
    )


def _table(exercise: Exercise, runs: Mapping[str, Run], peaks: Mapping[str, str]) -> Table:
    head = ("Run", "Knobs", "Ended", "Last loss", "Test accuracy", *(["Memory"] if peaks else []))
    rows = []
    for asked_run in exercise.run:
        run = runs[asked_run.name]
        changed = [f"{each.knob}={format_value(each.value)} from step {each.step:,} on" for each in run.timeline]
        loss = number(run.history.value("loss", len(run.history) - 1)) if len(run.history) else ""
        ended = "finished" if run.status == "finished" else f"diverged at step {run.first_nonfinite_step}"
        rows.append(
            (
                asked_run.name,
                " ".join([f"preset {asked_run.preset}", *asked_run.knobs, *changed]),  # a comma may wrap alone
                ended if run.status in ("finished", "nonfinite") else run.status, loss, percent(run.accuracy),
                *([peaks.get(asked_run.name, "")] if peaks else []),
            )
        )  # fmt: skip
    widths = (0.15, 0.37, 0.19, 0.13, 0.16) if not peaks else (0.14, 0.4, 0.12, 0.1, 0.13, 0.11)
    return Table(head, tuple(rows), widths, code=(0, 1))


def _pairs(exercise: Exercise, runs: Mapping[str, Run]) -> Iterator[Block]:
    for pair in exercise.pair:
        one, other = (runs[name].history.column("loss") for name in pair.runs)
        common = min(len(one), len(other))
        with np.errstate(invalid="ignore", divide="ignore"):
            apart = abs(one[:common] - other[:common]) / abs(other[:common])
        if not np.isfinite(apart).any():
            continue
        step = int(np.nanargmax(np.where(np.isfinite(apart), apart, np.nan)))
        most = f"differ by at most {number(apart[step])} times the loss, at step {step:,}"
        text = most if apart[step] else "are the same"
        yield Prose(f"In {common:,} steps the losses of {pair.runs[0]} and {pair.runs[1]} {text}.")


def _figures(exercise: Exercise, runs: Mapping[str, Run]) -> Iterator[Section]:
    blocks: list[Block] = []
    for place, study in enumerate(exercise.study):
        x = [float(runs[name].in_force[study.x]) for name in study.runs]
        y = [questions.value(measure.measure(study.y), runs[name]) for name in study.runs]
        unknown = [name for name, value in zip(study.runs, y, strict=True) if value is None]
        note = f"{measure.measure(study.y).words} over {study.x}" + (
            f"; without {', '.join(unknown)}, which has none" if unknown else ""
        )
        blocks.append(Plot(f"study-{place}", study.title, note, HEIGHT, partial(_draw_study, study), (x, y)))
    for place, curves in enumerate(exercise.curves):
        named_runs = [(name, runs[name]) for name in curves.runs]
        blocks.append(
            Plot(f"curves-{place}", curves.title, curves.column, HEIGHT, partial(_draw_curves, curves), named_runs)
        )
    if blocks:
        yield Section("figures", "Figures", tuple(blocks))


def _draw_study(study: Study, axes: Axes, points: tuple[list[float], list[float | None]], colours: Colours) -> None:
    pairs = sorted((x, y) for x, y in zip(*points, strict=True) if y is not None)
    if not pairs:
        return
    x, y = np.array(pairs).T
    plain_axis(axes, y)
    frame(axes, 2, colours)
    if x.min() > 0 and x.max() > 10 * x.min():
        axes.set_xscale("log")
        axes.set_xlim(x.min() / 1.5, x.max() * 1.5)
    else:
        axes.set_xlim(x.min() - 0.05 * np.ptp(x) - 1e-9, x.max() + 0.05 * np.ptp(x) + 1e-9)
    axes.plot(x, y, color=colours[SERIES[0]], marker="o", markersize=4, linewidth=1.2)
    axes.set_xticks(x, [number(each) for each in x])
    axes.set_xticks([], minor=True)


def _draw_curves(curves: Curves, axes: Axes, runs: Sequence[tuple[str, Run]], colours: Colours) -> None:
    values = []
    for _, run in runs:
        each = run.history.column(curves.column).astype(float)
        values.append(np.where(known_mask(each) & np.isfinite(each), each, np.nan))
    shown = np.concatenate([*values, np.empty(0)])
    wide = np.nanmax(shown, initial=0) > 100 * max(np.nanmin(shown, initial=np.inf), 1e-300)
    (log_axis if wide and (shown[~np.isnan(shown)] > 0).all() else plain_axis)(axes, shown)
    longest = max(len(each) for each in values)
    frame(axes, longest, colours)
    step_axis(axes, longest)
    lines = []
    for place, ((name, _), each) in enumerate(zip(runs, values, strict=True)):
        every = max(len(each) // MOST_POINTS, 1)
        steps = np.arange(0, len(each), every)
        dashes = DASHES[place] or (None, None)
        lines.append(
            axes.plot(steps, each[::every], color=colours[SERIES[place]], linewidth=1.1, dashes=dashes, label=name)[0]
        )
    key(axes, lines, colours, length=3.2)


def _answers(asked: Sequence[Question], answers: Sequence[str]) -> Iterator[Block]:
    for place, (question, answer) in enumerate(zip(asked, answers, strict=True), 1):
        lines = [f"{letter}. {text}" for letter, text in question.lettered_choices]
        where = f"run {question.run}" if question.is_question else "to be read by a teacher"
        yield Card("dim", "", f"{place}. {question.text}", where, tuple(lines), ())
        yield Prose(answer.strip() or "No answer.", dim=not answer.strip(), answer=True)


def class_document(handed: Sequence[HandedIn], exercises: Mapping[str, Assignment]) -> Document:
    """Return the table of a class, and each student's answers."""
    verified = sum(each.grade is not None and each.grade.verified for each in handed)
    rows = [
        (
            each.file,
            each.sheet.name if each.sheet else "",
            each.sheet.assignment if each.sheet else "",
            str(getattr(each.sheet, "seed", "")),
            *verdict_of(each),
            ", ".join(same_as(each, handed)),
        )
        for each in handed
    ]
    head = ("File", "Name", "Exercise", "Seed", "Verified", "Score", "Why", "Same as")
    table = Table(head, tuple(rows), (0.15, 0.13, 0.14, 0.08, 0.09, 0.09, 0.2, 0.12))
    return Document(
        title="Worksheets of a class",
        state=f"{verified} of {plural(len(handed), 'worksheet', 'worksheets')} verified",
        tone="good" if verified == len(handed) else "warning",
        summary="The runs of each worksheet were trained again, and its answers judged by what came of that.",
        about=f"GradStudio {gradstudio.__version__}.",
        sections=(Section("class", "All of them", (table,)), *(_of(each, exercises) for each in handed if each.grade)),
    )


def same_as(one: HandedIn, everybody: Sequence[HandedIn]) -> list[str]:
    """Return the other worksheets of the same exercise with the same seed, or with the same sentence in an answer."""
    return [each.file for each in everybody if each is not one and _marks(one) & _marks(each)]


def _marks(handed: HandedIn) -> set[tuple[str, ...]]:
    sheet = handed.sheet
    if not isinstance(sheet, Worksheet):
        return set()
    sentences = {name: text.strip() for name, text in sheet.answers.items() if len(text.split()) >= SENTENCE}
    return {(sheet.exercise, name, text) for name, text in {**sentences, "seed": str(sheet.seed)}.items()}


def verdict_of(handed: HandedIn) -> tuple[str, str, str]:
    """Return whether a worksheet is verified, its score and why."""
    if handed.grade is None:
        return "no", "", handed.fault
    grade = handed.grade
    return "yes" if grade.verified else "no", f"{grade.score} of {grade.most}", grade.reason


def _of(handed: HandedIn, exercises: Mapping[str, Assignment]) -> Section:
    assert handed.sheet is not None and handed.grade is not None
    blocks: list[Block] = [Prose(handed.grade.reason)]
    for place, each in enumerate(handed.grade.answers, 1):
        blocks += _answer_blocks(place, each)
    title = exercises[handed.sheet.what].title
    return Section(f"sheet-{handed.file}", f"{handed.sheet.name}: {title}", tuple(blocks))


def _answer_blocks(place: int, judged: GradedAnswer) -> Iterator[Block]:
    told = "to be read" if judged.points is None else f"{judged.points} of {judged.question.points}"
    tone = "dim" if judged.points is None else "good" if judged.points else "bad"
    right = "A full answer" if judged.points is None else "Right"
    lines = (f"{right}: {shorten(judged.right, 400)}",) if judged.right else ()
    yield Card(tone, told, f"{place}. {judged.question.text}", "", lines, ())
    yield Prose(judged.answer.strip() or "No answer.", dim=not judged.answer.strip(), answer=True)

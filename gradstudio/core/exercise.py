"""An exercise as stored in its file: the runs that a student makes, and the questions about them. A teacher can write
one (docs/course.md)."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Annotated

from pydantic import Field

from gradstudio.core import assignment, files, measure, presets
from gradstudio.core.assignment import LETTERS, Assignment, AssignmentError
from gradstudio.core.columns import COLUMNS
from gradstudio.core.experiment import Experiment, find_knob, parse_assignment
from gradstudio.core.knobs import KnobError, Value, quote
from gradstudio.core.lesson import Line, Outcome, Part, Text, TextWithQuestion
from gradstudio.core.presets import Preset, PresetError

MOST_RUNS, MOST_QUESTIONS = 12, 30
FOLDER = files.RESOURCES / "exercises"

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,29}$")]


class ExerciseRun(Part):
    """A run that the student makes: a bundled preset with knobs set before its start, and `then` knobs changed while it
    trains, at steps of the student's choice."""

    name: Name
    text: Text
    preset: Name
    knobs: list[Line] = []
    then: list[Line] = []
    outcome: Outcome | None = None

    def starts_with(self, seed: int) -> Experiment:
        """Return the experiment at step 0."""
        return self.beginning().experiment.with_texts([*self.knobs, f"run.seed={seed}"])

    def beginning(self) -> Preset:
        """Return its preset; PresetError if there is none with this name."""
        path = files.PRESETS / f"{self.preset}.toml"
        if not path.is_file():
            raise PresetError(f"preset {quote(self.preset)} is not one of the bundled ones")
        return presets.read(path)

    def command(self, seed: int) -> str:
        """Return the command that makes the run, with STEP as a placeholder for a step of the student's choice."""
        words = ["gradstudio", "run", self.preset, "--seed", str(seed)]
        for option, texts in (("--set", self.knobs), ("--at", [f"STEP:{text}" for text in self.then])):
            words += [word for text in texts for word in (option, text)]
        return shlex.join(words)

    @property
    def changes(self) -> dict[str, Value]:
        """The knobs that change during training."""
        return dict(map(parse_assignment, self.then))


class Question(TextWithQuestion):
    """A question. The program grades one with choices or with a number, from the run; a teacher grades the others."""

    run: Name = "-"  # the run whose numbers answer it
    full: Text = ""  # the content of a full answer if a teacher grades it; never shown to students
    points: Annotated[int, Field(ge=0, le=100)] = 1

    @property
    def where(self) -> str:
        """The run whose numbers answer it, as words to follow its text; "" if a teacher grades it."""
        return f" (run {self.run})" if self.is_question else ""

    @property
    def lettered_choices(self) -> list[tuple[str, str]]:
        """The choices, each with its letter."""
        return [(letter, choice.text) for letter, choice in zip(LETTERS, self.predict, strict=False)]


class Study(Part):
    """A plot of a measure of each run against a knob."""

    title: Line
    x: Line
    y: Line
    runs: Annotated[list[Name], Field(min_length=2, max_length=MOST_RUNS)]


class Curves(Part):
    """A plot of a column of several runs over their steps."""

    title: Line
    column: Line
    runs: Annotated[list[Name], Field(min_length=1, max_length=6)]


class Pair(Part):
    """Two runs whose losses the worksheet compares, step by step."""

    runs: Annotated[list[Name], Field(min_length=2, max_length=2)]


class Exercise(Assignment):
    minutes: Annotated[int, Field(ge=1, le=600)] = 30
    memory: bool = False  # whether the worksheet lists the memory use of each run
    run: Annotated[list[ExerciseRun], Field(min_length=1, max_length=MOST_RUNS)]
    question: Annotated[list[Question], Field(max_length=MOST_QUESTIONS)] = []
    study: list[Study] = []
    curves: list[Curves] = []
    pair: list[Pair] = []
    id: str = ""

    def check(self) -> None:
        names = [run.name for run in self.run]
        if len(set(names)) < len(names):
            raise KnobError("two runs have the same name")
        for run in self.run:
            run.starts_with(0)
            if idle := [name for name in run.changes if not find_knob(name).live]:
                raise KnobError(f"{run.name}: {idle[0]} acts on restart, so it cannot stand in `then`")
            run.starts_with(0).with_values(run.changes)
        used = [question.run for question in self.question if question.is_question]
        for name in (*used, *(name for part in (*self.study, *self.curves, *self.pair) for name in part.runs)):
            if name not in names:
                raise KnobError(f"run = {quote(name)} is not allowed; allowed: {', '.join(names)}")
        for question in self.question:
            question.check_question()
        for study in self.study:
            measure.measure(study.y)
            if find_knob(study.x).kind not in ("int", "float"):
                raise KnobError(f"x = {quote(study.x)} is no number, so nothing can be plotted over it")
        for curves in self.curves:
            if curves.column not in COLUMNS:
                raise KnobError(f"column = {quote(curves.column)} is not allowed; allowed: {', '.join(COLUMNS)}")


def available() -> dict[str, Path]:
    """Return the files of the bundled exercises by their ids, in order."""
    numbered = {int(path.stem.partition("-")[0]): path for path in FOLDER.glob("*.toml")}
    return {path.stem.partition("-")[2]: path for _, path in sorted(numbered.items())}


def load(source: str) -> Exercise:
    """Return the bundled exercise with this id or number, or the one in this file; AssignmentError otherwise."""
    known = available()
    source = dict(zip(map(str, range(1, len(known) + 1)), known, strict=False)).get(source, source)
    if source in known:
        return read(known[source], source)
    if not source.endswith(".toml"):
        raise AssignmentError(f"no exercise {source[:60]!r}; allowed: {', '.join(known)}, or the path of a .toml file")
    return read(Path(source))


def read(path: Path, id: str = "") -> Exercise:
    """Return the exercise in a file; its id defaults to the name of the file."""
    id = id or re.sub(r"[^a-z0-9-]+", "-", path.stem.lower())[:40]
    return assignment.read(path, Exercise).model_copy(update={"id": id})

"""An exercise as it stands in its file: the runs that a student makes, and the questions about them. A teacher can
write one (docs/course.md)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field, ValidationError

from gradstudio.core import files, measure, presets, strict_toml
from gradstudio.core.columns import COLUMNS
from gradstudio.core.experiment import Experiment, find_knob, parse_assignment
from gradstudio.core.knobs import KnobError, Value, quote
from gradstudio.core.lesson import MOST_CHOICES, TABLE, Choice, Explain, Line, Outcome, Text, check_rule
from gradstudio.core.presets import Preset, PresetError
from gradstudio.core.strict_toml import TomlError

MOST_RUNS, MOST_QUESTIONS = 12, 30
FOLDER = files.RESOURCES / "exercises"

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,29}$")]


class ExerciseError(ValueError):
    """An exercise that cannot be read. One line: which file, where, what is allowed."""


class _Part(BaseModel):
    model_config = TABLE


class ExerciseRun(_Part):
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
        """Return its preset; PresetError where there is none of this name."""
        path = files.PRESETS / f"{self.preset}.toml"
        if not path.is_file():
            raise PresetError(f"preset {quote(self.preset)} is not one of the bundled ones")
        return presets.read(path)

    @property
    def changes(self) -> dict[str, Value]:
        """The knobs that are changed while it trains."""
        return dict(map(parse_assignment, self.then))


class Question(_Part):
    """A question. The program judges one with choices or with a number, by the run; a teacher reads the others."""

    text: Text
    run: Name = "-"  # whose numbers answer it
    predict: Annotated[list[Choice], Field(max_length=MOST_CHOICES)] = []
    explain: Explain | None = None
    points: Annotated[int, Field(ge=0, le=100)] = 1

    @property
    def judged(self) -> bool:
        return bool(self.predict) or self.explain is not None


class Study(_Part):
    """A plot of a measure of each run over a knob of it."""

    title: Line
    x: Line
    y: Line
    runs: Annotated[list[Name], Field(min_length=2, max_length=MOST_RUNS)]


class Curves(_Part):
    """A plot of a column of several runs over their steps."""

    title: Line
    column: Line
    runs: Annotated[list[Name], Field(min_length=1, max_length=6)]


class Pair(_Part):
    """Two runs whose losses the worksheet compares, step by step."""

    runs: Annotated[list[Name], Field(min_length=2, max_length=2)]


class Exercise(_Part):
    schema_: Literal[1] = Field(alias="schema")
    title: Annotated[str, Field(max_length=presets.LONGEST_TITLE)]
    text: Text = ""
    minutes: Annotated[int, Field(ge=1, le=600)] = 30
    memory: bool = False  # whether the worksheet says what each run takes of memory
    run: Annotated[list[ExerciseRun], Field(min_length=1, max_length=MOST_RUNS)]
    question: Annotated[list[Question], Field(max_length=MOST_QUESTIONS)] = []
    study: list[Study] = []
    curves: list[Curves] = []
    pair: list[Pair] = []
    id: str = ""

    def check(self) -> None:
        """Raise KnobError or PresetError where it names what there is not."""
        names = [run.name for run in self.run]
        if len(set(names)) < len(names):
            raise KnobError("two runs have the same name")
        for run in self.run:
            run.starts_with(0)
            if idle := [name for name in run.changes if not find_knob(name).live]:
                raise KnobError(f"{run.name}: {idle[0]} acts on restart, so it cannot stand in `then`")
            run.starts_with(0).with_values(run.changes)
        used = [question.run for question in self.question if question.judged]
        for name in (*used, *(name for part in (*self.study, *self.curves, *self.pair) for name in part.runs)):
            if name not in names:
                raise KnobError(f"run = {quote(name)} is not allowed; allowed: {', '.join(names)}")
        for question in self.question:
            _check_question(question)
        for study in self.study:
            measure.measure(study.y)
            if find_knob(study.x).kind not in ("int", "float"):
                raise KnobError(f"x = {quote(study.x)} is no number, so nothing can be plotted over it")
        for curves in self.curves:
            if curves.column not in COLUMNS:
                raise KnobError(f"column = {quote(curves.column)} is not allowed; allowed: {', '.join(COLUMNS)}")


def _check_question(question: Question) -> None:
    if question.predict and question.explain:
        raise KnobError("predict and explain are two questions; allowed: one of them")
    if len(question.predict) == 1:
        raise KnobError(f"predict has 1 choice; allowed: 2 to {MOST_CHOICES}")
    if question.explain:
        measure.measure(question.explain.measure)
    for choice in question.predict:
        check_rule(choice.rule)
        for text in choice.where:
            measure.comparison(text)
        if not (choice.outcome or choice.rule or choice.where):
            raise KnobError(f"choice {quote(choice.text)} names nothing that a run could show; allowed: outcome, "
                            "rule, where")  # fmt: skip


def available() -> dict[str, Path]:
    """Return the files of the bundled exercises by their ids, in order."""
    return {path.stem.partition("-")[2]: path for path in sorted(FOLDER.glob("*.toml"))}


def load(source: str) -> Exercise:
    """Return the bundled exercise with this id or number, or the one in this file; ExerciseError otherwise."""
    known = available()
    source = dict(zip(map(str, range(1, len(known) + 1)), known, strict=False)).get(source, source)
    if source in known:
        return read(known[source], source)
    if not source.endswith(".toml"):
        raise ExerciseError(f"no exercise {source[:60]!r}; allowed: {', '.join(known)}, or the path of a .toml file")
    return read(Path(source))


def read(path: Path, id: str = "") -> Exercise:
    """Return the exercise in a file; its id is the file's name where it has no other."""
    try:
        found = Exercise.model_validate(strict_toml.parse(strict_toml.read(path)))
        found.check()
    except TomlError as fault:
        raise ExerciseError(f"{path}{fault}") from None
    except ValidationError as fault:
        raise ExerciseError(f"{path}: {told(fault)}") from None
    except (KnobError, PresetError) as fault:
        raise ExerciseError(f"{path}: {fault}") from None
    return found.model_copy(update={"id": id or re.sub(r"[^a-z0-9-]+", "-", path.stem.lower())[:40]})


def told(fault: ValidationError) -> str:
    """Return the first thing that is wrong in a file, as half a sentence."""
    first = fault.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where} = {quote(first['input'])} is not allowed; {first['msg'].lower()}"

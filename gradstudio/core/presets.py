"""Presets: an Experiment, a timeline and a lesson as a TOML file, and back; where presets are stored, and the errors
for an invalid one."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import tomli_w
from pydantic import BaseModel, Field, ValidationError

from gradstudio.core import files, plugins, strict_toml, studio_file
from gradstudio.core.events import Change
from gradstudio.core.experiment import KNOBS, TITLES, Experiment, experiment_from
from gradstudio.core.knobs import KnobError, quote
from gradstudio.core.lesson import TABLE, LessonStep, Notes, Outcome, Text, check_rule
from gradstudio.core.planned_changes import errors_at, read_timeline
from gradstudio.core.strict_toml import TomlError
from gradstudio.core.text import clean, one_line

SCHEMA = 2  # of the files that are written; those of schema 1 are read too (older_meanings.py)
LONGEST_TITLE = 60  # characters, also for an exercise and an exam
MOST_CELLS = 1024  # on an axis of a map
LARGEST_PROMISE = 20  # wrong fixes: each is trained for each seed

# The topics of presets, in the order in which they are listed.
Group = Literal[
    "healthy", "exploding", "vanishing", "precision", "clipping", "accumulation", "loss", "data", "loop order",
    "optimizer", "architecture", "",
]  # fmt: skip
GROUPS: tuple[str, ...] = get_args(Group)

# The difficulty of a lesson, in the recommended order.
Level = Literal["basic", "intermediate", "advanced", ""]
LEVELS: tuple[str, ...] = get_args(Level)
MOST_BEFORE = 8  # number of prerequisites
_SENTENCE = re.compile(r"(?<=[.?!])\s+")  # separator between two entries


class PresetError(ValueError):
    """A preset that cannot be read or written. One line for the user: which file, where, what is allowed."""

    def __init__(self, text: str) -> None:
        super().__init__(one_line(text))


class _Part(BaseModel):
    model_config = TABLE


class Promise(_Part):
    """What a preset demonstrates: how the run ends, which rule fires, the change that fixes it, and those that do not.
    Without a fix, a rule and wrong fixes it is the promise that a run is healthy."""

    outcome: Outcome = "finished"
    rule: Text | None = None
    fix: list[Text] = []
    accuracy: float = 0.0  # accuracy on the test set at the end: at least this, after the fix
    # likewise: at most this, before the fix and after a wrong one; None: 0.3 x accuracy
    broken_accuracy: float | None = None
    wrong_fixes: Annotated[list[list[Text]], Field(max_length=LARGEST_PROMISE)] = []  # each leaves the run broken

    @property
    def of_health(self) -> bool:
        return self.outcome == "finished" and not (self.rule or self.fix or self.wrong_fixes)

    @property
    def most_when_broken(self) -> float:
        return 0.3 * self.accuracy if self.broken_accuracy is None else self.broken_accuracy


class MapProposal(_Part):
    """The map to draw of a preset first: its axes and panels in the form of the options of `gradstudio map`."""

    x: Text
    y: Text
    by: Text = ""
    cells: Annotated[int, Field(ge=2, le=MOST_CELLS)] = 32
    steps: Annotated[int, Field(ge=0, le=KNOBS["run.steps"].maximum)] = 0  # of each run; 0: the preset's

    @property
    def free(self) -> set[str]:
        """Knobs in which a map may differ from the preset and still count as the proposed one."""
        return {text.partition("=")[0].strip() for text in (self.x, self.y, self.by)} | {"run.steps", "run.device"}


class FileHead(_Part):
    """The part of the file that contains no knobs."""

    schema_: Literal[1, 2] = Field(1, alias="schema")
    group: Group = ""
    level: Level = ""
    after: Annotated[list[Text], Field(max_length=MOST_BEFORE)] = []
    title: Text = ""
    summary: Text = ""
    lesson: list[LessonStep] = []
    promise: Promise | None = None
    map: MapProposal | None = None
    notes: Notes | None = None
    timeline: list[dict] = []


class Preset(_Part):
    id: str
    title: str
    experiment: Experiment
    group: Group = ""
    level: Level = ""
    after: list[str] = []  # ids of the prerequisite presets
    summary: str = ""
    lesson: list[LessonStep] = []
    promise: Promise | None = None
    map: MapProposal | None = None
    notes: Notes | None = None  # for the teacher
    timeline: tuple[Change, ...] = ()
    path: Path | None = None
    bundled: bool = False
    written_in: int = SCHEMA  # the schema of its file

    @property
    def setting(self) -> str:
        """The first sentence of the summary, which says what is trained but not how it goes."""
        return _SENTENCE.split(self.summary, maxsplit=1)[0]


def available() -> Iterator[Path]:
    """Yield the files of all presets: the bundled ones first, then the user's, as far as they are accessible."""
    for folder in (files.PRESETS, files.user_presets(), *_added_folders()):
        with contextlib.suppress(OSError):
            yield from sorted(folder / name for name in os.listdir(folder) if name.endswith(".toml"))


def _added_folders() -> list[Path]:
    """Return the folders with the presets of plug-ins; each entry is a path or a function that returns one."""
    folders: list[Path] = []
    for name in plugins.names("presets"):

        def folder(given: Any) -> Path:
            source: Any = given() if callable(given) else given
            path = Path(source)
            os.listdir(path)
            return path

        added = plugins.attempt("presets", name, partial(folder, plugins.get("presets", name)))
        folders += [added] if added is not None else []
    return folders


def read_ahead() -> None:
    """Read every preset into the cache, so that listing them is fast."""
    for path in available():
        with contextlib.suppress(PresetError):
            read(path)


def why_unreachable() -> str:
    """Return why the user's own presets cannot be listed, as one line; "" if they can."""
    folder = files.user_presets()
    if why := files.why_unreachable(folder):
        return why
    try:
        os.listdir(folder)
    except FileNotFoundError:
        return ""
    except OSError as fault:
        return f"{folder}: {files.reason(fault)}"
    return ""


def load(source: str | Path) -> Preset:
    """Return the preset with this id or in this file; PresetError otherwise."""
    known = {path.stem: path for path in reversed(list(available()))}
    if str(source) in known:
        return read(known[str(source)])
    path = Path(source)
    if path.suffix == ".toml" or studio_file.is_named(path) or os.path.exists(path):
        return read(path)
    raise PresetError(
        f"no preset {str(source)[:80]}{_nearest(str(source), known)}; allowed: an id that `gradstudio presets` lists, "
        "such as rnn-explosion, or the path of a .toml file"
    )


def _nearest(wanted: str, known: Iterable[str]) -> str:
    """Return a question that suggests the id probably meant, or ""."""
    near = difflib.get_close_matches(wanted[:LONGEST_TITLE], known, 1)
    return f": is {near[0]} meant?" if near else ""


def read(path: Path) -> Preset:
    """Return the preset in a file, or the studio file if its name ends in .py; PresetError names the file, the line or
    knob, the value and what is allowed."""
    if studio_file.is_named(path):
        return of_studio_file(path)
    try:
        text = strict_toml.read(path)
    except TomlError as fault:
        raise PresetError(f"{path}{fault}") from None
    return _known(text, path)


def of_studio_file(path: Path) -> Preset:
    """Return a studio file as a preset, with every knob at its default. None of its code is run."""
    try:
        file = studio_file.load(path)
    except KnobError as fault:
        raise PresetError(str(fault)) from None
    return Preset(id=clean(path.stem), title=file.title, experiment=Experiment(studio_file=file), path=path)


def parse(text: str, path: Path) -> Preset:
    """Return the preset written as `text`; `path` provides its id and is named in errors."""
    try:
        table = strict_toml.parse(text)
    except TomlError as fault:
        raise PresetError(f"{path}{fault}") from None
    try:
        head = {key: value for key, value in table.items() if key not in TITLES and key in _KEYS}
        about = FileHead.model_validate(head)
        experiment = experiment_from({key: value for key, value in table.items() if key not in _KEYS})
        timeline = read_timeline(about.timeline, experiment)
        _check_assignments(about, experiment)
    except ValidationError as fault:
        first = fault.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        place, value = f"{path}{strict_toml.line_of(text, where)}", quote(first["input"])
        raise PresetError(f"{place}: {where} = {value} is not allowed; {first['msg'].lower()}") from None
    except KnobError as fault:
        raise PresetError(f"{path}{strict_toml.line_of(text, str(fault))}: {fault}") from None
    name = clean(path.stem)
    return Preset(
        id=name, group=about.group, level=about.level, after=about.after, title=about.title or name,
        summary=about.summary, lesson=about.lesson, promise=about.promise, map=about.map, notes=about.notes,
        experiment=experiment, timeline=timeline, path=path, bundled=path.parent == files.PRESETS,
        written_in=about.schema_,
    )  # fmt: skip


_known = lru_cache(maxsize=128)(parse)  # a menu reads every preset each time it is opened


def _check_assignments(about: FileHead, experiment: Experiment) -> None:
    """Raise KnobError if a lesson or the promise names an unknown knob or rule, or a value that is not allowed."""
    for index, step in enumerate(about.lesson):
        with errors_at(f"lesson.{index}"):
            step.check(experiment)
            if step.map and not about.map:
                raise KnobError(f"map = {quote(step.map)} is not allowed; allowed: beside a table [map]")
    if about.promise:
        with errors_at("promise"):
            experiment.with_texts(about.promise.fix)
            for wrong in about.promise.wrong_fixes:
                experiment.with_texts(wrong)
            check_rule(about.promise.rule)
    for name in ("x", "y", "by") if about.map else ():
        if text := getattr(about.map, name):
            with errors_at("map"):
                experiment.find_knob(text.partition("=")[0].strip())


def to_toml(preset: Preset) -> str:
    """Return the text of a preset file: only the knobs that differ from their default."""
    table: dict = {"schema": SCHEMA, "title": preset.title}
    for name in ("group", "level", "after", "summary"):
        if value := getattr(preset, name):
            table[name] = value
    for name, value in preset.experiment.changed_knobs().items():
        section, _, field = name.partition(".")
        table.setdefault(section, {})[field] = value
    if file := preset.experiment.studio_file:
        table["studio_file"] = {"name": file.name, "sha256": file.sha256, "text": file.lines}
    if preset.promise:
        table["promise"] = preset.promise.model_dump(exclude_defaults=True)
    if preset.lesson:
        table["lesson"] = [step.model_dump(exclude_defaults=True) for step in preset.lesson]
    if preset.map:
        table["map"] = preset.map.model_dump(exclude_defaults=True)
    if preset.notes:
        table["notes"] = preset.notes.model_dump(exclude_defaults=True)
    if preset.timeline:
        table["timeline"] = [
            {"step": change.step, "knob": change.knob, "value": change.value} for change in preset.timeline
        ]
    return tomli_w.dumps(table)


_KEYS = {"schema", "group", "level", "after", "title", "summary", "lesson", "promise", "map", "notes", "timeline"}

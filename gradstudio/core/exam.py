"""An exam as stored in its file: a run with a hidden cause, what may be changed, and the causes to choose from. The
hidden part is packed, so that it cannot be read by opening the file in an editor. It is no secret: anyone with this
program and some Python can unpack it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import tomli_w
from pydantic import Field

from gradstudio.core import assignment
from gradstudio.core.assignment import LETTERS, Assignment
from gradstudio.core.events import MOST_CHANGES, Change
from gradstudio.core.experiment import KNOBS, TITLES, Experiment, find_knob, parse_assignment
from gradstudio.core.knobs import KnobError, Value
from gradstudio.core.lesson import Line, Part
from gradstudio.core.planned_changes import read_timeline

LARGEST = 100_000  # bytes of the file, and of what is packed in it
MOST_STEPS = 20_000  # of the run, which an untrusted file may specify
MOST_FIXED = 20  # number of knobs that a fix changes
LONGEST_CHOICE = 300  # characters
SEEDS = 3  # in which a fix must hold
TASK = (
    "problem.task", "problem.seq_len", "problem.batch_size", "problem.skip_batches", "model.kind", "model.depth",
    "model.width", "model.checkpointing", "run", "distributed",
)  # fmt: skip

Name = Annotated[str, Field(max_length=80)]


class HiddenPart(Part):
    """The packed part: the run, what is wrong with it, and a fix that holds. `aims`: by seed, the final test accuracy
    of the run with the fix."""

    knobs: Annotated[dict[str, bool | int | float | str], Field(max_length=200)]
    timeline: Annotated[list[tuple[int, str, bool | int | float | str]], Field(max_length=MOST_CHANGES)] = []
    right: Annotated[int, Field(ge=0, lt=len(LETTERS))]  # index of the right choice
    fix: Annotated[list[Line], Field(min_length=1, max_length=MOST_FIXED)]
    aims: Annotated[dict[str, float], Field(min_length=SEEDS, max_length=SEEDS)]


class Exam(Assignment):
    """`locked`: knobs, and sections of knobs, that may not be changed; `shown`: those whose values are shown.
    `changes`: how many knobs a fix may change; `tries`: how many runs are allowed, besides the first, which has no
    change."""

    changes: Annotated[int, Field(ge=1, le=MOST_FIXED)]
    tries: Annotated[int, Field(ge=1, le=50)]
    choices: Annotated[
        list[Annotated[str, Field(max_length=LONGEST_CHOICE)]], Field(min_length=2, max_length=len(LETTERS))
    ]
    locked: Annotated[list[Name], Field(max_length=200)] = []
    shown: Annotated[list[Name], Field(max_length=200)] = []
    packed: Annotated[str, Field(max_length=LARGEST)] = ""
    sum: Annotated[str, Field(max_length=64)] = ""

    @property
    def id(self) -> str:
        return self.sum[:12]

    def is_locked(self, knob: str) -> bool:
        return knob in self.locked or knob.partition(".")[0] in self.locked

    def is_shown(self, knob: str) -> bool:
        return knob in self.shown or knob.partition(".")[0] in self.shown

    @property
    def hidden(self) -> HiddenPart:
        """The unpacked content. ValueError if it is damaged; an exam from `read` is not."""
        data = _scramble(base64.b64decode(self.packed, validate=True))
        unpacking = zlib.decompressobj()
        text = unpacking.decompress(data, LARGEST)
        if unpacking.unconsumed_tail:
            raise ValueError("too much is packed")
        return HiddenPart.model_validate_json(text)

    def with_hidden(self, hidden: HiddenPart) -> Exam:
        packed = base64.b64encode(_scramble(zlib.compress(hidden.model_dump_json().encode(), 9))).decode()
        exam = self.model_copy(update={"packed": packed})
        return exam.model_copy(update={"sum": exam.digest()})

    def digest(self) -> str:
        """Return the SHA-256 of everything but itself: it detects an edited file."""
        table = self.model_dump(by_alias=True, exclude={"sum"})
        return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()

    def to_toml(self) -> str:
        return tomli_w.dumps(self.model_dump(by_alias=True), multiline_strings=True)

    def experiment(self, changed: Mapping[str, Value] | None = None) -> tuple[Experiment, tuple[Change, ...]]:
        """Return the run with knobs changed, and its live changes: a knob that was changed keeps that value."""
        hidden, changed = self.hidden, changed or {}
        knobs = Experiment().with_values(hidden.knobs).with_values(changed)
        if knobs.run.steps > MOST_STEPS:
            raise KnobError(f"run.steps = {knobs.run.steps:,} is not allowed; allowed: at most {MOST_STEPS:,}")
        entries = [
            {"step": step, "knob": knob, "value": value} for step, knob, value in hidden.timeline if knob not in changed
        ]
        return knobs, read_timeline(entries, knobs)

    def parse_changes(self, texts: list[str]) -> dict[str, Value]:
        """Return the changes in texts such as optimizer.lr=0.1; KnobError if one is not allowed."""
        changed: dict[str, Value] = {}
        for text in texts:
            name, value = parse_assignment(text)
            if self.is_locked(name):
                raise KnobError(f"{name} is locked in this exam; allowed: all but {', '.join(self.locked)}")
            changed[name] = value
        if len(changed) > self.changes:
            raise KnobError(f"{len(changed)} knobs are changed; allowed: at most {self.changes}")
        self.experiment(changed)
        return changed

    def check(self) -> None:
        if self.digest() != self.sum:
            raise KnobError("was changed after `gradstudio exam new` wrote it")
        try:
            hidden = self.hidden
        except (zlib.error, ValueError):
            raise KnobError("what is packed in it is damaged") from None
        for name in (*self.locked, *self.shown):
            check_name(name)
        experiment, _ = self.experiment()
        if experiment.distributed.ranks > 1:
            raise KnobError("distributed.ranks is above 1; an exam has one process")
        if hidden.right >= len(self.choices):
            raise KnobError("the right choice is not among the choices")
        self.parse_changes(hidden.fix)
        seeds = {int(seed) for seed in hidden.aims if re.fullmatch("[0-9]{1,10}", seed)}
        if len(seeds) < SEEDS or experiment.run.seed not in seeds or max(seeds) > KNOBS["run.seed"].maximum:
            raise KnobError("the seeds of its fix are not those of its run")


def read(path: Path) -> Exam:
    """Return the exam in a file; AssignmentError if it is not one, or was edited."""
    return assignment.read(path, Exam, most=LARGEST)


def check_name(name: str) -> None:
    """Raise KnobError if there is neither a knob nor a section of this name."""
    if name not in TITLES:
        find_knob(name)


def _scramble(data: bytes) -> bytes:
    """Return the bytes XORed with a fixed stream, which also reverses it: the result contains no readable text."""
    stream = hashlib.shake_256(b"GradStudio exam").digest(len(data))
    return bytes(one ^ other for one, other in zip(data, stream, strict=True))

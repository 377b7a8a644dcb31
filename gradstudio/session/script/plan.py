"""What a script is to repeat: the values a run starts with, and which of them change on the way."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from gradstudio.core.events import Change
from gradstudio.core.experiment import Experiment
from gradstudio.core.knobs import Value


@dataclass(frozen=True)
class Plan:
    """An experiment and its timeline, asked knob by knob. What stays as it is stands in the script as a literal, where it acts;
    what changes is an attribute of the script's `knobs`."""

    experiment: Experiment
    timeline: tuple[Change, ...] = ()

    def __getitem__(self, name: str) -> Value:
        """The value at the start."""
        return self.experiment[name]

    def first(self, name: str) -> Value:
        """The value when step 0 is made: the last that a change before it gave, or the one at the start."""
        return [self[name], *(change.value for change in self.timeline if change.knob == name and change.step == 0)][-1]

    def changes(self, name: str) -> bool:
        """Whether the knob takes another value during the run."""
        return len(self.values(name)) > 1

    def values(self, name: str) -> list[Value]:
        """Every value that the knob has at some step, the first one first."""
        return list(dict.fromkeys([self[name], *(change.value for change in self.timeline if change.knob == name)]))

    def above(self, name: str, limit: float) -> bool:
        """Whether the knob, a number, is larger than that at some step."""
        return any(float(value) > limit for value in self.values(name))

    def ever(self, name: str, *values: Value) -> bool:
        """Whether the knob has one of these values at some step."""
        return any(value in values for value in self.values(name))

    def text(self, name: str) -> str:
        """The knob in an expression: its value as Python writes it, or the name under which the script keeps what changes."""
        return f"knobs.{variable(name)}" if self.changes(name) else literal(self[name])


def effective(experiment: Experiment, timeline: Iterable[Change]) -> Iterator[Change]:
    """The changes that a run makes: not those to a value that is in force already, nor those after its end."""
    in_force: dict[str, Value] = {}
    for change in timeline:
        if change.step < experiment.run.steps and in_force.get(change.knob, experiment[change.knob]) != change.value:
            in_force[change.knob] = change.value
            yield change


def literal(value: Value) -> str:
    """A value as Python writes it, texts in double quotes."""
    return json.dumps(value) if isinstance(value, str) else repr(value)


def variable(name: str) -> str:
    """'clipping_max_norm' for clipping.max_norm."""
    return name.replace(".", "_")


@dataclass
class Lines:
    """Lines of a program, indented by four spaces for each level of `depth`."""

    lines: list[str] = field(default_factory=list)

    def add(self, text: str = "", depth: int = 0) -> None:
        """One or more lines; an empty text is an empty line."""
        self.lines += ["    " * depth + line if line else "" for line in text.split("\n")]

    def __str__(self) -> str:
        return "\n".join(self.lines)

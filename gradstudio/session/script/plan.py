"""The plan of a script: the values that a run starts with, and which of them change during it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from gradstudio.core.events import Change
from gradstudio.core.experiment import Experiment
from gradstudio.core.knobs import Value


@dataclass(frozen=True)
class Plan:
    """An experiment and its timeline, asked knob by knob. A value that stays is a literal in the script; one that
    changes is an attribute of the script's `knobs`."""

    experiment: Experiment
    timeline: tuple[Change, ...] = ()

    def __getitem__(self, name: str) -> Value:
        """Return the value at the start."""
        return self.experiment[name]

    @property
    def own(self) -> bool:
        """Whether the script trains a studio file."""
        return self.experiment.studio_file is not None

    @property
    def parameters(self) -> str:
        """The expression for the parameters that are trained."""
        return "parameters" if self.own else "model.parameters()"

    @property
    def named_parameters(self) -> str:
        """The expression for these parameters with their names."""
        return "named" if self.own else "model.named_parameters()"

    @property
    def zero_grad(self) -> str:
        """The line that clears the gradients."""
        return f"optimizer.zero_grad({'set_to_none=False' if self.own or self.keeps_gradients else ''})"

    @property
    def keeps_gradients(self) -> bool:
        """Whether something asks for gradients before the first backward pass, as not every rule of clipping does."""
        early = self.ever("mistakes.clip_before_backward", True)
        return early and any(self.ever("clipping.kind", kind) for kind in ("value", "agc"))

    @property
    def next_batch(self) -> str:
        """The line that takes the next micro-batch."""
        return "batch = next(batches)" if self.own else "inputs, targets = next(batches)"

    def first(self, name: str) -> Value:
        """Return the value in force at step 0: that of the last change before it, or the one at the start."""
        return [self[name], *(change.value for change in self.timeline if change.knob == name and change.step == 0)][-1]

    def changes(self, name: str) -> bool:
        """Return whether the knob changes during the run."""
        return len(self.values(name)) > 1

    def values(self, name: str) -> list[Value]:
        """Return every value that the knob has at some step, in order."""
        return list(dict.fromkeys([self[name], *(change.value for change in self.timeline if change.knob == name)]))

    def above(self, name: str, limit: float) -> bool:
        """Return whether the knob, a number, is above a limit at some step."""
        return any(float(value) > limit for value in self.values(name))

    def ever(self, name: str, *values: Value) -> bool:
        """Return whether the knob has one of these values at some step."""
        return any(value in values for value in self.values(name))

    def text(self, name: str) -> str:
        """Return the knob in an expression: its value as Python writes it, or its name in the script where it
        changes."""
        return f"knobs.{variable(name)}" if self.changes(name) else literal(self[name])


def effective(experiment: Experiment, timeline: Iterable[Change]) -> Iterator[Change]:
    """Yield the changes that have an effect: not those to a value in force, nor those after the end of the run."""
    in_force: dict[str, Value] = {}
    for change in timeline:
        if change.step < experiment.run.steps and in_force.get(change.knob, experiment[change.knob]) != change.value:
            in_force[change.knob] = change.value
            yield change


def literal(value: Value) -> str:
    """Return a value as Python writes it, with texts in double quotes."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def variable(name: str) -> str:
    """Return 'clipping_max_norm' for clipping.max_norm."""
    return name.replace(".", "_")


@dataclass
class Lines:
    """Lines of a program, indented by four spaces for each level of `depth`."""

    lines: list[str] = field(default_factory=list)

    def add(self, text: str = "", depth: int = 0) -> None:
        """Add one or more lines; an empty text is an empty line."""
        self.lines += ["    " * depth + line if line else "" for line in text.split("\n")]

    def __str__(self) -> str:
        return "\n".join(self.lines)

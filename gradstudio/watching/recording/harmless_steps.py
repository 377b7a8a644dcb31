"""Steps with a non-finite loss that may have done no harm: they are held back until the training continues normally."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from torch import nn

from gradstudio.core.diagnosis.birth_remedies import of_birth
from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.diagnosis.script_faults import script_fault
from gradstudio.core.text import brief, number
from gradstudio.engine.operation_watcher import values_of
from gradstudio.watching.births.skipped_batches import LONGEST
from gradstudio.watching.births.step_births import NO_BIRTH, Birth
from gradstudio.watching.recording.birth_lines import place_and_cause
from gradstudio.watching.steps.measured_step import MeasuredStep

MOST_HELD = 20  # number of rows: a loss that is non-finite for so long has diverged


class Harmless(NamedTuple):
    """The report on steps that turned out to be harmless: a line, which is "" if it was printed before, an event, whose
    value is the number of steps, and a finding."""

    said: str
    event: str
    steps: int | None
    finding: Finding | None


class HeldSteps:
    """The steps that are held back, and those that turned out to be harmless."""

    def __init__(self) -> None:
        self.steps: list[MeasuredStep] = []
        self.spared = 0  # steps with a non-finite loss from which a loss scaler protected the weights
        self.harmless = 0  # steps with only a non-finite loss
        self._birth = NO_BIRTH  # of the first of those
        self._first: int | None = None  # its row

    @staticmethod
    def may_be_harmless(made: MeasuredStep) -> bool:
        """Return whether the weights were protected from a step, and had no part in it."""
        birth, _ = made.birth
        return made.spares_weights and (birth is None or birth.phase != "update")

    @property
    def were_reported(self) -> bool:
        """Whether a step was reported that turned out to be harmless: later ones are only events."""
        return self.spared + self.harmless > 0

    @property
    def birth(self) -> Birth:
        """The birth of the divergence if these steps are its beginning."""
        own = self.steps[0].birth
        return own if own[0] is not None else self._birth

    def release(self) -> list[MeasuredStep]:
        """Return the steps, which are held no longer."""
        steps, self.steps = self.steps, []
        return steps

    def accept(self, steps: Sequence[MeasuredStep], models: Iterable[nn.Module], row: int) -> Harmless:
        """Count these steps as harmless, the first of which is this row."""
        first = steps[0]
        of_loss = sum(made.is_of_loss_alone for made in steps)
        spared = sum(not (made.left_out or made.is_of_loss_alone) for made in steps)
        said = _report_line(spared if not self.spared else 0, of_loss if not self.harmless else 0)
        self.spared, self.harmless = self.spared + spared, self.harmless + of_loss
        event = _event(steps, models)
        if not first.is_of_loss_alone:
            return Harmless(said, event, len(steps) if len(steps) > 1 else None, None)
        self._birth = self._birth if self._birth[0] is not None else first.birth
        self._first = row if self._first is None else self._first
        return Harmless(said, event, None, _finding(first, self._birth, self._first, row, self.harmless))


def _report_line(spared: int, of_loss_alone: int) -> str:
    """Return the line that follows the report of the first such step; "" if there is none."""
    if spared:
        return "the loss scaler skipped that update, and the training goes on; later such steps are events of the run"
    return "its gradient was finite all the same, and the training goes on" if of_loss_alone else ""


def _event(measured_steps: Sequence[MeasuredStep], models: Iterable[nn.Module]) -> str:
    """Return the text about these steps, and a buffer that they have spoiled."""
    first, (provenance, unknown) = measured_steps[0], measured_steps[0].birth
    text = f"loss {number(first.loss)}" + f", {len(measured_steps)} steps" * (len(measured_steps) > 1)
    if provenance is not None:
        born = place_and_cause(provenance)
    else:
        born = f"where it was born is not known: {unknown or 'nobody searched for it'}"
    spoiled = _spoiled_buffer(models)
    spoils = f"; its buffer {spoiled} holds NaN" * bool(spoiled)
    if first.is_of_loss_alone:
        return brief(f"{text}, with a gradient that is finite all the same{spoils}; {born}", LONGEST)
    by = "watch, as on_nonfinite='skip' asks" if first.left_out else "loss scaler"
    return brief(f"a batch was skipped by the {by}: {text}; no update was made{spoils}; {born}", LONGEST)


def _finding(measured_step: MeasuredStep, birth: Birth, first: int, step: int, count: int) -> Finding:
    """Return the finding of a non-finite loss that does no harm. `birth` and `first` are of the first such loss,
    `step` is that of this one, and `count` how many there were."""
    provenance, _ = birth
    text = (
        f"The loss of step {step:,} is {number(measured_step.loss)}, while the norm of its gradient is "
        f"{number(measured_step.gradient.norm)}; the weights are finite after it, and the training goes on."
    )
    if provenance is not None:
        earlier = "It" if birth is measured_step.birth else "An earlier one"
        text += f" {earlier} was {place_and_cause(provenance)}."
    text += f" There were {count:,} such steps so far." if count > 1 else ""
    lines = of_birth(provenance) if provenance is not None else None
    return script_fault("harmless_loss", text, first, step, known=(lines or ("",))[0])


def _spoiled_buffer(models: Iterable[nn.Module]) -> str:
    """Return the name of a buffer of the models that contains NaN, such as a running mean after a batch with one; "" if
    there is none. -Inf may be a mask."""
    for model in models:
        for name, buffer in model.named_buffers():
            if buffer.is_floating_point() and values_of(buffer).nan:
                return name
    return ""

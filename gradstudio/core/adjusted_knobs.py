"""The other knobs that must change so that a choice can be had, such as the model that a task needs."""

from __future__ import annotations

from itertools import combinations

from gradstudio.core.experiment import Experiment
from gradstudio.core.knobs import KnobError, Value

# Tried in this order. What each value belongs with is in combinations.py.
_WAYS_OUT: tuple[tuple[str, Value], ...] = (
    ("loss.kind", "auto"), ("problem.seq_len", 64), ("model.kind", "gan"), ("model.kind", "policy"),
    ("model.kind", "mlp"), ("problem.task", "ring"), ("problem.task", "pole"), ("problem.task", "digits"),
    ("problem.batch_size", 2), ("model.residual_scaling", "none"), ("model.kind", "transformer"),
    ("model.parametrization", "standard"), ("optimizer.kind", "adamw"),
)  # fmt: skip


def with_adjustments(knobs: Experiment, name: str, value: Value) -> Experiment:
    """Return a copy with one knob changed, and with it as few others as it takes to make the values go together.

    KnobError if the value itself is not allowed, and where a number does not go with the others: who asks for
    another length or batch wants no other task and no other norm."""
    try:
        return knobs.with_value(name, value)
    except KnobError as fault:
        if not isinstance(value, str):
            raise
        for count in (1, 2, 3):
            for others in combinations([way for way in _WAYS_OUT if way[0] != name], count):
                try:
                    return knobs.with_values({name: value, **dict(others)})
                except KnobError:
                    continue
        raise fault

"""The other knobs that must change with a choice, such as the model that a task needs."""

from __future__ import annotations

from itertools import combinations

from gradstudio.core.experiment import Experiment
from gradstudio.core.knobs import KnobError, Value

# Tried in this order. combinations.py says which values go together.
_WAYS_OUT: tuple[tuple[str, Value], ...] = (
    ("loss.kind", "auto"), ("problem.seq_len", 64), ("model.kind", "gan"), ("model.kind", "policy"),
    ("model.kind", "mlp"), ("problem.task", "ring"), ("problem.task", "pole"), ("problem.task", "digits"),
    ("problem.batch_size", 2), ("model.residual_scaling", "none"), ("model.kind", "transformer"),
    ("model.parametrization", "standard"), ("optimizer.kind", "adamw"), ("problem.batch_size", 1),
    ("precision.dtype", "fp32"), ("clipping.kind", "norm"), ("model.norm", "layer"),
)  # fmt: skip


def with_adjustments(knobs: Experiment, name: str, value: Value) -> Experiment:
    """Return a copy with one knob changed, plus as few others as are needed to make the values compatible.

    KnobError if the value itself is not allowed, or if a number conflicts with other knobs: a new length or batch size
    must not change the task or the norm."""
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

"""Which values go together, where each is allowed by itself; and what else must change so that one can be had."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from gradstudio.core.knobs import KnobError, Value, format_value

if TYPE_CHECKING:
    from gradstudio.core.experiment import Experiment

PIXELS = 64  # a digit is 8 x 8
MODEL_OF_TASK = {"ring": "gan", "pole": "policy"}  # and of no other task
_SUPERVISED = ("digits", "sequential_digits", "adding", "copy", "characters", "spirals")
_CLASSES = ("digits", "sequential_digits", "copy", "characters", "spirals")
# The tasks that a loss written by hand can be used for: naive_sqrt compares examples that have one label each.
LOSS_TASKS: dict[str, tuple[str, ...]] = {
    "naive_log": _CLASSES,
    "naive_division": _SUPERVISED,
    "naive_sqrt": ("digits", "sequential_digits", "spirals"),
    "naive_exp": _CLASSES,
    "naive_variance": _SUPERVISED,
}
# What is tried, in this order, so that a value can be had that does not go with the others.
_WAYS_OUT: tuple[tuple[str, Value], ...] = (
    ("loss.kind", "auto"), ("problem.seq_len", 64), ("model.kind", "gan"), ("model.kind", "policy"), ("model.kind", "mlp"),
    ("problem.task", "ring"), ("problem.task", "pole"), ("problem.task", "digits"), ("problem.batch_size", 2),
)  # fmt: skip


def check(knobs: Experiment) -> None:
    """KnobError for the first two values that do not go together; it says which of them to change, and to what."""
    task, model = knobs.problem.task, knobs.model.kind
    if task == "sequential_digits" and PIXELS % knobs.problem.seq_len:
        _refuse(("problem.seq_len", knobs.problem.seq_len), ("problem.task", task), "a divisor of 64: 1, 2, 4, 8, 16, 32, 64")
    if task in MODEL_OF_TASK and model != MODEL_OF_TASK[task]:
        _refuse(("model.kind", model), ("problem.task", task), MODEL_OF_TASK[task])
    if task not in MODEL_OF_TASK and model in MODEL_OF_TASK.values():
        only = next(name for name, needed in MODEL_OF_TASK.items() if needed == model)
        _refuse(("problem.task", task), ("model.kind", model), only)
    if task not in LOSS_TASKS.get(knobs.loss.kind, (task,)):
        allowed = ["auto", *(kind for kind, tasks in LOSS_TASKS.items() if task in tasks)]
        _refuse(("loss.kind", knobs.loss.kind), ("problem.task", task), ", ".join(allowed))
    if knobs.problem.batch_size == 1 and knobs.loss.kind == "naive_sqrt":
        _refuse(("problem.batch_size", 1), ("loss.kind", "naive_sqrt"), "at least 2, as it compares examples")
    if knobs.problem.batch_size == 1 and knobs.model.norm == "batch":
        _refuse(("problem.batch_size", 1), ("model.norm", "batch"), "at least 2, or model.norm = layer")


def with_companions(knobs: Experiment, name: str, value: Value) -> Experiment:
    """A copy with one knob changed, and with it as few others as it takes to make the values go together; KnobError
    where the value itself is not allowed, and where a number does not go with the others: it brings no other choice with it."""
    try:
        return knobs.with_value(name, value)
    except KnobError as fault:
        if not isinstance(value, str):  # who asks for another length or batch wants no other task and no other norm
            raise
        for count in (1, 2, 3):
            for others in combinations([way for way in _WAYS_OUT if way[0] != name], count):
                try:
                    return knobs.with_values({name: value, **dict(others)})
                except KnobError:
                    continue
        raise fault


def _refuse(wrong: tuple[str, Value], beside: tuple[str, Value], allowed: str) -> None:
    raise KnobError(f"{wrong[0]} = {format_value(wrong[1])} is not allowed with {beside[0]} = {format_value(beside[1])}; allowed: {allowed}")

"""The knob values that go together, for values that are each allowed by themselves. Nothing here depends on
Experiment."""

from __future__ import annotations

from gradstudio.core.knobs import KnobError, Value, format_value

PIXELS = 64  # a digit is 8 x 8
MODEL_OF_TASK = {"ring": "gan", "pole": "policy", "bandit": "policy"}  # and for no other task
ACTING = ("pole", "bandit")  # tasks in which the model acts, and is paid
_SUPERVISED = ("digits", "sequential_digits", "adding", "copy", "characters", "spirals")
CLASSES = ("digits", "sequential_digits", "copy", "characters", "spirals")
LABELLED = ("digits", "sequential_digits", "spirals")  # one label per example, from a fixed training set
DATASETS = (*LABELLED, "bandit")
WHOLE_TENSORS = ("muon", "stable_adamw")  # optimizers whose update of an entry depends on the whole tensor
ONE_RATE = (*WHOLE_TENSORS, "schedule_free")  # which have one learning rate for all weights that they train
# The tasks that support a hand-written loss: naive_sqrt compares examples that have one label each.
LOSS_TASKS: dict[str, tuple[str, ...]] = {
    "naive_log": CLASSES,
    "naive_division": _SUPERVISED,
    "naive_sqrt": LABELLED,
    "naive_exp": CLASSES,
    "naive_variance": _SUPERVISED,
}


def check(
    *, task: str, seq_len: int, batch_size: int, model: str, norm: str, loss: str, residual_scaling: str,
    optimizer: str, parametrization: str, samples: int, qk_clip: float,
) -> None:  # fmt: skip
    """Raise KnobError for the first two values that do not go together; the error says which to change, and to what."""
    if task == "sequential_digits" and PIXELS % seq_len:
        _refuse(("problem.seq_len", seq_len), ("problem.task", task), "a divisor of 64: 1, 2, 4, 8, 16, 32, 64")
    if task == "bandit" and batch_size % samples:
        _refuse(("problem.batch_size", batch_size), ("problem.samples", samples), f"a multiple of {samples}")
    if task in MODEL_OF_TASK and model != MODEL_OF_TASK[task]:
        _refuse(("model.kind", model), ("problem.task", task), MODEL_OF_TASK[task])
    if task not in MODEL_OF_TASK and model in MODEL_OF_TASK.values():
        only = ", ".join(name for name, needed in MODEL_OF_TASK.items() if needed == model)
        _refuse(("problem.task", task), ("model.kind", model), only)
    if task not in LOSS_TASKS.get(loss, (task,)):
        allowed = ["auto", *(kind for kind, tasks in LOSS_TASKS.items() if task in tasks)]
        _refuse(("loss.kind", loss), ("problem.task", task), ", ".join(allowed))
    if residual_scaling == "fixup" and model != "transformer":  # it needs branches of two layers
        _refuse(("model.residual_scaling", "fixup"), ("model.kind", model), "none, rezero, deepnorm")
    others = "sgd, adam, adamw, rmsprop, lion"
    if optimizer in ONE_RATE and model == "gan":  # which has two networks, each with its own rate
        _refuse(("optimizer.kind", optimizer), ("model.kind", "gan"), others)
    if optimizer in ONE_RATE and parametrization == "mup":  # whose rates are derived for the others
        _refuse(("optimizer.kind", optimizer), ("model.parametrization", "mup"), others)
    if optimizer == "schedule_free" and qk_clip:  # which computes all weights anew from two means of its own
        _refuse(("clipping.qk_clip", qk_clip), ("optimizer.kind", "schedule_free"), "0")
    if batch_size == 1 and loss == "naive_sqrt":
        _refuse(("problem.batch_size", 1), ("loss.kind", "naive_sqrt"), "at least 2, as it compares examples")
    if norm == "rms" and model == "cnn":  # torch's has a factor for each pixel
        _refuse(("model.norm", "rms"), ("model.kind", "cnn"), "none, batch, layer, group")
    if batch_size == 1 and norm == "batch":
        _refuse(("problem.batch_size", 1), ("model.norm", "batch"), "at least 2, or model.norm = layer")


def check_each_example(batch_size: int, *, scaled: bool, mistaken: bool) -> None:
    """Raise KnobError for what does not go with clipping.kind = per_example."""
    each = ("clipping.kind", "per_example")
    if batch_size != 1:
        _refuse(("problem.batch_size", batch_size), each, "1, with accumulation.steps examples in a step")
    if scaled:
        raise KnobError("precision.dtype = fp16 is not allowed with clipping.kind = per_example; allowed: fp32, bf16")
    if mistaken:
        raise KnobError("a mistake of the loop is not allowed with clipping.kind = per_example")


def _refuse(wrong: tuple[str, Value], beside: tuple[str, Value], allowed: str) -> None:
    raise KnobError(
        f"{wrong[0]} = {format_value(wrong[1])} is not allowed with {beside[0]} = {format_value(beside[1])}; "
        f"allowed: {allowed}"
    )

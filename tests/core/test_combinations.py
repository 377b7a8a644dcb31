"""Values that go together: every pair can be asked for, and what comes along is as little as it takes."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradstudio.core.adjusted_knobs import with_adjustments
from gradstudio.core.combinations import LOSS_TASKS, MODEL_OF_TASK
from gradstudio.core.experiment import KNOBS, Experiment
from gradstudio.core.knobs import KnobError, Value

TASKS, MODELS, LOSSES = (KNOBS[name].choices for name in ("problem.task", "model.kind", "loss.kind"))
CHOICES = ("problem.task", "model.kind", "loss.kind", "model.norm", "problem.batch_size", "problem.seq_len")


def differing(before: Experiment, after: Experiment) -> dict[str, Value]:
    return {knob.name: value for knob, value in after.items() if before[knob.name] != value}


@pytest.mark.parametrize(("task", "model"), list(product(TASKS, MODELS)))
def test_the_ring_needs_a_gan_the_pole_a_policy_and_nothing_else_does(task: str, model: str) -> None:
    values = {"problem.task": task, "model.kind": model}
    if MODEL_OF_TASK.get(task) == model or (task not in MODEL_OF_TASK and model not in MODEL_OF_TASK.values()):
        assert Experiment().with_values(values).model.kind == model
    else:
        with pytest.raises(KnobError, match=r"is not allowed with .*; allowed: \w+"):
            Experiment().with_values(values)


@pytest.mark.parametrize(("loss", "task"), list(product(LOSSES, TASKS)))
def test_a_loss_written_by_hand_is_for_some_tasks(loss: str, task: str) -> None:
    values = {"problem.task": task, "loss.kind": loss, "model.kind": MODEL_OF_TASK.get(task, "mlp")}
    if task in LOSS_TASKS.get(loss, (task,)):
        assert Experiment().with_values(values).loss.kind == loss
    else:
        with pytest.raises(
            KnobError, match=rf"loss\.kind = {loss} is not allowed with problem\.task = {task}; allowed: auto"
        ):
            Experiment().with_values(values)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"problem.batch_size": 1, "loss.kind": "naive_sqrt"}, "allowed: at least 2"),
        ({"problem.batch_size": 1, "model.norm": "batch"}, "allowed: at least 2, or model.norm = layer"),
        ({"problem.task": "sequential_digits", "problem.seq_len": 48}, "allowed: a divisor of 64"),
    ],
)
def test_a_refusal_says_what_is_allowed(values: dict[str, Value], says: str) -> None:
    with pytest.raises(KnobError) as raised:
        Experiment().with_values(values)
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("before", "name", "value", "comes"),
    [
        ({}, "problem.task", "ring", {"model.kind": "gan"}),
        ({}, "problem.task", "pole", {"model.kind": "policy"}),
        ({}, "model.kind", "gan", {"problem.task": "ring"}),
        ({"problem.task": "ring", "model.kind": "gan"}, "problem.task", "pole", {"model.kind": "policy"}),
        ({"problem.task": "ring", "model.kind": "gan"}, "model.kind", "mlp", {"problem.task": "digits"}),
        ({"loss.kind": "naive_sqrt"}, "problem.task", "adding", {"loss.kind": "auto"}),
        ({"loss.kind": "naive_sqrt"}, "problem.task", "ring", {"loss.kind": "auto", "model.kind": "gan"}),
        ({"problem.seq_len": 100}, "problem.task", "sequential_digits", {"problem.seq_len": 64}),
        ({"problem.batch_size": 1}, "model.norm", "batch", {"problem.batch_size": 2}),
        ({}, "optimizer.lr", 0.5, {}),
    ],
)
def test_what_comes_along(before: dict[str, Value], name: str, value: Value, comes: dict[str, Value]) -> None:
    experiment = Experiment().with_values(before)
    assert differing(experiment, with_adjustments(experiment, name, value)) == {name: value, **comes}


@pytest.mark.parametrize(
    ("other", "choice", "number", "value"),
    [
        ("problem.task", "sequential_digits", "problem.seq_len", 48),
        ("model.norm", "batch", "problem.batch_size", 1),
        ("loss.kind", "naive_sqrt", "problem.batch_size", 1),
    ],
)
def test_a_number_brings_no_other_choice(other: str, choice: str, number: str, value: int) -> None:
    with pytest.raises(KnobError, match=f"{number} = {value} is not allowed with {other} = {choice}; allowed: "):
        with_adjustments(Experiment().with_value(other, choice), number, value)


def test_ranks_and_sharpness_aware_minimization_are_refused_in_one_line() -> None:
    with pytest.raises(
        KnobError, match=r"optimizer\.sam_rho = 0\.05 is not allowed with distributed\.ranks = 2: the gradi"
    ):
        Experiment().with_texts(["distributed.ranks=2", "optimizer.sam_rho=0.05"])


def test_a_value_that_is_never_allowed_is_refused_by_its_own_name() -> None:
    with pytest.raises(KnobError, match=r"optimizer\.lr = -1"):
        with_adjustments(Experiment(), "optimizer.lr", -1.0)


@given(
    st.lists(
        st.sampled_from(CHOICES).flatmap(
            lambda name: st.tuples(st.just(name), st.sampled_from(KNOBS[name].choices or (1, 2, 8, 64)))
        ),
        max_size=6,
    )
)
def test_whatever_is_chosen_in_whatever_order_holds(chosen: list[tuple[str, Value]]) -> None:
    experiment = Experiment()
    for name, value in chosen:
        try:
            experiment = with_adjustments(experiment, name, value)
        except KnobError:
            assert not isinstance(value, str)
        else:
            assert experiment[name] == value

"""The note of a mistake: where it changes nothing, it says what would make it count."""

from __future__ import annotations

import pytest

from gradstudio.core.experiment import KNOBS, Experiment
from gradstudio.core.mistakes import note

NAMES = [name for name in KNOBS if name.startswith("mistakes.")]
# Knobs beside which every mistake does something: several micro-batches, clipping, a loss scale and a schedule.
ALL_THERE = {
    "accumulation.steps": 4, "clipping.kind": "value", "precision.dtype": "fp16", "optimizer.kind": "sgd",
    "schedule.kind": "cosine", "loss.class_weights": "balanced",
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_no_mistake_is_said_to_change_nothing_where_everything_is_there(name: str) -> None:
    assert "changes nothing" not in note(name, Experiment().with_values(ALL_THERE))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "mistakes.never_zero_grad"])
def test_every_other_mistake_changes_nothing_by_default_and_says_so(name: str) -> None:
    assert note(name, Experiment()).startswith("changes nothing ")


@pytest.mark.parametrize(
    ("name", "values", "says"),
    [
        ("clip_after_step", {}, "without clipping"),
        ("clip_before_unscale", {"clipping.kind": "norm"}, "without loss scaling"),
        ("clip_before_unscale", {"clipping.kind": "norm", "precision.dtype": "fp16", "optimizer.kind": "adam"}, "Adam"),
        ("unscale_twice", {}, "precision.dtype = fp16"),
        ("step_without_scaler", {"precision.dtype": "fp16", "precision.scaling": "static"}, "dynamic"),
        ("step_without_scaler", {"precision.dtype": "fp16"}, "overflows"),
        ("never_update_scaler", {"precision.dtype": "bf16"}, "dynamic"),
        ("normalize_each_micro_batch", {"loss.class_weights": "balanced"}, "accumulation.steps"),
        ("normalize_each_micro_batch", {"accumulation.steps": 4}, "loss.class_weights"),
        ("clip_each_micro_batch", {"clipping.kind": "norm"}, "accumulation.steps"),
        ("unscaled_accumulation", {"accumulation.steps": 4, "optimizer.kind": "adam"}, "Adam"),
        ("unscaled_accumulation", {"accumulation.steps": 4, "clipping.kind": "norm"}, "clipping hides it"),
        ("zero_grad_each_micro_batch", {"accumulation.steps": 4}, "its gradient is shorter"),
        ("scheduler_each_micro_batch", {"accumulation.steps": 4}, "schedule"),
        ("never_zero_grad", {"precision.dtype": "fp16"}, "loss scale hides it"),
    ],
)
def test_what_is_said(name: str, values: dict, says: str) -> None:
    assert says in note(f"mistakes.{name}", Experiment().with_values(values))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("clip_after_step", {"clipping.kind": "norm"}),
        ("clip_each_micro_batch", {"clipping.kind": "norm", "accumulation.steps": 2}),
        ("unscaled_accumulation", {"accumulation.steps": 4}),
        ("never_zero_grad", {}),
        ("never_update_scaler", {"precision.dtype": "fp16"}),
        ("drop_last_micro_batches", {"accumulation.steps": 2}),
    ],
)
def test_a_mistake_in_plain_sight_needs_no_note(name: str, values: dict) -> None:
    assert note(f"mistakes.{name}", Experiment().with_values(values)) == ""


def test_other_names_have_none() -> None:
    assert note("optimizer.lr", Experiment()) == ""

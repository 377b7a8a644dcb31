"""The order of a loop's calls: a right one has no fault, every other one has, and each known mistake is called by its
name."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.history import LAYER_METRICS, History
from gradstudio.core.loop_calls import Call, Loop, faults, in_words, right, without_skip
from gradstudio.core.row import Row
from gradstudio.core.rules.loop_order import LoopOrder

MICRO = ("forward", "backward")
ORDERS = [
    Loop((), count, clipping, scaling, skipped)
    for count, clipping, scaling, skipped in product(
        (1, 2, 4), (False, True), ("none", "static", "dynamic"), (False, True)
    )
    if scaling == "dynamic" or not skipped
]


def done_right(loop: Loop) -> Loop:
    return loop._replace(calls=right(loop))


def spelled(words: str) -> tuple[str, ...]:
    """The calls behind the words, which is the inverse of in_words."""
    opened = re.sub(r"(\d+) × \(([^)]*)\)", lambda found: ", ".join([found[2]] * int(found[1])), words)
    return tuple(opened.split(", "))


@pytest.mark.parametrize("loop", ORDERS)
def test_a_right_loop_has_no_fault(loop: Loop) -> None:
    assert faults(done_right(loop)) == []


def test_a_right_loop_reads_as_the_grammar() -> None:
    loop = Loop((), 2, True, "dynamic", False)
    assert right(loop) == ("zero_grad", *MICRO, *MICRO, "unscale", "clip", "step", "update", "schedule")
    assert right(loop._replace(skipped=True))[-1] == "update"
    assert in_words(right(loop)) == "zero_grad, 2 × (forward, backward), unscale, clip, step, update, schedule"


# What each mistake makes of a loop, written out by hand: two micro-batches.
TWO = ("zero_grad", *MICRO, *MICRO)
BROKEN = {
    "clip_after_step": Loop((*TWO, "step", "clip", "schedule"), 2, True, "none", False),
    "clip_before_backward": Loop(
        ("zero_grad", "clip", *MICRO, *MICRO, "unscale", "step", "update", "schedule"), 2, True, "dynamic", False
    ),
    "divide_each_micro_batch": Loop(
        ("zero_grad", *MICRO, "divide", *MICRO, "divide", "step", "schedule"), 2, False, "none", False
    ),
    "clip_before_unscale": Loop((*TWO, "clip", "unscale", "step", "update", "schedule"), 2, True, "dynamic", False),
    "unscale_twice": Loop((*TWO, "unscale", "unscale", "step", "update", "schedule"), 2, False, "dynamic", False),
    "step_without_scaler": Loop(
        (*TWO, "unscale", "step_without_scaler", "update", "schedule"), 2, False, "dynamic", False
    ),
    "never_update_scaler": Loop((*TWO, "unscale", "step", "schedule"), 2, False, "dynamic", False),
    "clip_each_micro_batch": Loop(
        ("zero_grad", *MICRO, "clip", *MICRO, "clip", "step", "schedule"), 2, True, "none", False
    ),
    "zero_grad_each_micro_batch": Loop(
        ("zero_grad", "zero_grad", *MICRO, "zero_grad", *MICRO, "step", "schedule"), 2, False, "none", False
    ),
    "never_zero_grad": Loop((*MICRO, *MICRO, "step", "schedule"), 2, False, "none", False),
    "scheduler_each_micro_batch": Loop(
        ("zero_grad", *MICRO, "schedule", *MICRO, "step", "schedule"), 2, False, "none", False
    ),
    "drop_last_micro_batches": Loop(("zero_grad", *MICRO, "step", "schedule"), 2, False, "none", False),
}


@pytest.mark.parametrize("mistake", BROKEN)
def test_each_mistake_is_called_by_its_name_and_no_other(mistake: str) -> None:
    assert [fault.mistakes for fault in faults(BROKEN[mistake])] == [(mistake,)]


def test_two_mistakes_are_both_named() -> None:
    loop = Loop((*MICRO, "step", "clip", "schedule"), 1, True, "none", False)
    assert {fault.mistakes for fault in faults(loop)} == {("never_zero_grad",), ("clip_after_step",)}
    twice = Loop((*TWO, "clip", "unscale", "step", "clip", "update", "schedule"), 2, True, "dynamic", False)
    assert {fault.mistakes for fault in faults(twice)} == {("clip_before_unscale",), ("clip_after_step",)}


def test_clipping_after_a_step_without_the_scaler_is_named() -> None:
    loop = Loop((*TWO, "unscale", "step_without_scaler", "clip", "update", "schedule"), 2, True, "dynamic", False)
    assert {fault.mistakes for fault in faults(loop)} == {("clip_after_step",), ("step_without_scaler",)}


def test_with_one_micro_batch_two_mistakes_make_the_same_calls() -> None:
    loop = Loop(("zero_grad", *MICRO, "clip", "unscale", "step", "update", "schedule"), 1, True, "dynamic", False)
    assert [fault.mistakes for fault in faults(loop)] == [("clip_before_unscale", "clip_each_micro_batch")]


def test_with_one_micro_batch_a_second_zero_grad_is_told_as_harmless() -> None:
    (fault,) = faults(Loop(("zero_grad", "zero_grad", *MICRO, "step", "schedule"), 1, False, "none", False))
    assert "does nothing" in fault.text and fault.mistakes == ("zero_grad_each_micro_batch",)


orders = st.sampled_from(ORDERS).map(done_right)


@given(orders, st.data())
def test_any_other_order_has_a_fault(loop: Loop, data: st.DataObject) -> None:
    calls = list(loop.calls)
    match data.draw(st.sampled_from(("permute", "drop", "repeat", "replace"))):
        case "permute":
            calls = list(data.draw(st.permutations(calls)))
        case "drop":
            del calls[data.draw(st.integers(0, len(calls) - 1))]
        case "repeat":
            index = data.draw(st.integers(0, len(calls) - 1))
            calls.insert(data.draw(st.integers(0, len(calls))), calls[index])
        case "replace":
            calls[data.draw(st.integers(0, len(calls) - 1))] = data.draw(st.sampled_from(get_args(Call)))
    found = faults(loop._replace(calls=tuple(calls)))
    assert bool(found) == (tuple(calls) != loop.calls)
    assert all(fault.text.endswith(".") for fault in found)


@given(st.lists(st.sampled_from(get_args(Call)), min_size=1, max_size=12).map(tuple))
def test_words_lose_no_call(calls: tuple[Call, ...]) -> None:
    assert spelled(in_words(calls)) == calls


@pytest.mark.parametrize("loop", [*map(done_right, ORDERS), *BROKEN.values()])
def test_words_of_loops_can_be_read_back(loop: Loop) -> None:
    assert spelled(in_words(loop.calls)) == loop.calls


@pytest.mark.parametrize("each", [
    ("zero_grad", "schedule", "forward", "backward", "clip"), ("zero_grad", "forward", "backward", "clip"),
    ("forward", "backward"),
])  # fmt: skip
def test_many_micro_batches_are_few_words(each: tuple[Call, ...]) -> None:
    calls = ("zero_grad", *each * 256, "step", "schedule")
    assert len(in_words(calls)) < 200 and spelled(in_words(calls)) == calls


def test_a_skip_is_no_other_loop() -> None:
    going = done_right(Loop((), 2, True, "dynamic", False))
    skipped = done_right(going._replace(skipped=True))
    assert without_skip(skipped) == going == without_skip(going)
    wrong = skipped._replace(calls=(*skipped.calls, "schedule"))  # the schedule went on though nothing was updated
    assert without_skip(wrong) == wrong and faults(wrong)


def history_of(*loops: Loop) -> History:
    """A row a loop."""
    history = History()
    row = Row(0, 1.0, 1.0, 1.0, 1.0, 0.1, 1.0, False, 0, 1e-3, 1.0, 0.5, 0.01, np.empty((len(LAYER_METRICS), 0)))
    for step, loop in enumerate(loops):
        history.append(replace(row, step=step, loop=loop))
    return history


@pytest.mark.parametrize("mistake", BROKEN)
def test_the_rule_tells_since_when_and_offers_to_switch_it_off(mistake: str) -> None:
    fine, broken = done_right(BROKEN[mistake]), BROKEN[mistake]
    finding = LoopOrder().update(history_of(fine, fine, broken, broken), Progress())
    assert finding and (finding.first_step, finding.last_step) == (2, 3)
    assert finding.remedies == (f"mistakes.{mistake}=false",)
    healed = LoopOrder().update(history_of(fine, broken, broken, fine), Progress())
    assert healed and (healed.first_step, healed.last_step) == (1, 2)
    assert LoopOrder().update(history_of(fine, fine), Progress()) is None


def test_steps_that_are_skipped_now_and_then_are_one_stretch() -> None:
    going = done_right(Loop((), 1, False, "dynamic", False))
    skipped = done_right(going._replace(skipped=True))
    assert history_of(*[going, skipped] * 100).loops == [(0, going)]
    assert [step for step, _ in history_of(skipped, going, going._replace(calls=going.calls[1:]), going).loops] == [
        0,
        2,
        3,
    ]

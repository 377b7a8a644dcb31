"""The calls of each step are noted as they are made, and their order tells a broken loop, whatever the loss does."""

from __future__ import annotations

from itertools import islice

import pytest

from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.experiment import KNOBS
from gradstudio.core.history import History
from gradstudio.core.loop_calls import faults, right
from gradstudio.core.rules.loop_order import LoopOrder

WHOLE = [
    "accumulation.steps=3",
    "clipping.kind=norm",
    "precision.dtype=fp16",
    "precision.init_scale=1024",
    "schedule.warmup_steps=9",
]
MISTAKES = [name.partition(".")[2] for name in KNOBS if name.startswith("mistakes.")]
SEEN_ELSEWHERE = {
    "unscaled_accumulation",
    "normalize_each_micro_batch",  # their calls are right, their gradients are not: the joined batch tells
    "unscale_twice",  # torch ends the run before the step is over
}


@pytest.mark.parametrize("knobs", [
    [], ["accumulation.steps=3"], ["clipping.kind=norm"], ["clipping.kind=agc"], ["precision.dtype=fp16"],
    ["precision.dtype=bf16"], WHOLE,
    ["precision.dtype=fp16", "precision.scaling=static"], ["precision.dtype=fp16", "precision.scaling=none"],
    ["precision.dtype=fp16", "precision.init_scale=1e38"],
], ids=" ".join)  # fmt: skip
def test_a_right_loop_makes_the_calls_that_are_due(train, knobs):
    for row in train(4, *knobs):
        assert row.loop.calls == right(row.loop)
        assert row.loop.micro_batches == (3 if "accumulation.steps=3" in knobs else 1)
        assert ("schedule" in row.loop.calls) != row.skipped


@pytest.mark.parametrize("mistake", [name for name in MISTAKES if name not in SEEN_ELSEWHERE])
def test_a_mistake_is_named_by_its_calls(train, mistake):
    steps = 1 if mistake == "never_update_scaler" else 2  # torch ends the run at the step after it
    for row in train(steps, *WHOLE, f"mistakes.{mistake}=true"):
        assert (mistake,) in {fault.mistakes for fault in faults(row.loop)}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_that_has_nothing_to_spoil_makes_right_calls(train, mistake):
    """One micro-batch, no clipping, no scaler: there only what is done to zero_grad is seen."""
    if mistake != "unscale_twice":
        found = {name for fault in faults(train(1, f"mistakes.{mistake}=true")[0].loop) for name in fault.mistakes}
        assert found == {mistake} & {"never_zero_grad", "zero_grad_each_micro_batch"}


def test_the_rule_tells_since_when_and_that_it_was_put_right(build):
    trainer = build(*WHOLE)
    history, rule, steps = History(trainer.layers), LoopOrder(), trainer.steps()
    finding = None
    for step, switched in enumerate([None, None, True, None, False, None]):
        if switched is not None:
            trainer.change("mistakes.clip_after_step", switched)
        history.append(next(steps))
        finding = rule.update(history, Progress())
        assert (finding is not None) == (step >= 2)
    assert (finding.first_step, finding.last_step) == (2, 3)
    assert finding.remedies == ("mistakes.clip_after_step=false",)
    assert "clip comes after step" in finding.meaning and "3 × (forward, backward)" in finding.evidence


def test_only_changes_are_kept(build):
    trainer = build()
    history = History(trainer.layers)
    for row in islice(trainer.steps(), 20):
        history.append(row)
    assert [step for step, _ in history.loops] == [0]

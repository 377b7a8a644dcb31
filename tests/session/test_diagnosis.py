"""Small real runs with a known fault: the cause is named first, one of its first two remedies heals it, and healthy
runs give no alarm.

A fixed part of `python -m benchmarks faults`, which draws such runs by the hundred."""

from __future__ import annotations

import json

import pytest

from gradstudio.core.experiment import Experiment
from gradstudio.core.presets import Preset
from gradstudio.session.files.summary import summarize, to_json
from gradstudio.session.record.ranked_findings import ranked_findings
from gradstudio.session.record.run import Run
from gradstudio.session.running.worker import Worker

NET = [
    "model.depth=2",
    "model.width=48",
    "model.init=he",
    "problem.batch_size=32",
    "run.steps=150",
    "run.device=cpu",
    "optimizer.lr=0.1",
]
DEEP = [*NET, "model.depth=9", "problem.batch_size=64", "optimizer.lr=0.01", "optimizer.momentum=0.9"]
SUMS = [*NET, "problem.batch_size=8", "accumulation.steps=4"]
HALF = [*NET, "precision.dtype=fp16"]

# What is healthy, the fault in it, the rule that names it, and the accuracy that is healed.
FAULTS: dict[str, tuple[list[str], list[str], str]] = {
    "rate too high, Adam": (
        NET,
        ["optimizer.kind=adam", "optimizer.lr=3", "model.activation=gelu"],
        "update_ratio_high",
    ),
    "rate too low": (NET, ["optimizer.lr=1e-6"], "update_ratio_low"),
    "drawn too small": (DEEP, ["model.init_gain=0.3"], "poor_initialization"),
    "drawn too large": (DEEP, ["model.init_gain=4"], "poor_initialization"),
    "drawn as zero": (NET, ["model.init=zeros"], "poor_initialization"),
    "deep sigmoid": (DEEP, ["model.activation=sigmoid", "model.init=xavier"], "vanishing_gradient"),
    # no layer keeps the gradient back
    "inputs of zero": ([*NET, "model.init=default"], ["problem.input_scale=0"], "signal_lost"),
    "inputs too small": ([*NET, "model.init=default"], ["problem.input_scale=1e-3"], "signal_lost"),
    "inputs too small, no biases": (NET, ["problem.input_scale=1e-3"], "nothing_learned"),
    "born dead": (NET, ["model.initial_bias=-8"], "dead_units"),
    "outlier": ([*NET, "run.steps=200"], ["problem.outlier_every=70"], "exploding_gradient"),
    "clipped too low": (NET, ["clipping.kind=norm", "clipping.max_norm=1e-3"], "clipping_always"),
    "fp16 underflow": (HALF, ["loss.weight=1e-6", "precision.scaling=none"], "fp16_underflow"),
    "fp16 overflow": (HALF, ["precision.scaling=static", "precision.init_scale=1e9"], "fp16_overflow"),
    "log of zero": ([*NET, "optimizer.kind=adam", "optimizer.lr=0.01"], ["loss.kind=naive_log"], "nonfinite_loss"),
    "not divided": (SUMS, ["mistakes.unscaled_accumulation=true"], "accumulation_mismatch"),
    "dropped": (SUMS, ["mistakes.drop_last_micro_batches=true"], "accumulation_mismatch"),
    "never cleared": (NET, ["mistakes.never_zero_grad=true"], "loop_order"),
    "clip on scaled": (HALF, ["clipping.kind=norm", "mistakes.clip_before_unscale=true"], "clip_on_scaled_gradients"),
    "clip after step": (
        NET,
        ["clipping.kind=norm", "clipping.max_norm=0.5", "mistakes.clip_after_step=true"],
        "clip_without_effect",
    ),
}


def trained(texts: list[str]) -> Run:
    experiment = Experiment().with_texts(texts)
    run = Run(Preset(id="made", title="Made", experiment=experiment), experiment)
    Worker(run).run()
    assert run.status in ("finished", "nonfinite"), run.message
    return run


@pytest.mark.parametrize("fault", FAULTS)
def test_the_cause_is_named_first_and_a_remedy_heals_it(fault: str) -> None:
    sound, change, rule = FAULTS[fault]
    run = trained([*sound, *change])
    causes = ranked_findings(run)
    assert [finding.rule for finding in causes if finding.severity != "info"] == [rule]
    first = json.loads(to_json(summarize(run)))["findings"][0]
    assert (first["rule"], first["explains"]) == (rule, list(causes[0].explains))
    healed = (trained([*sound, *change, *remedy.split()]) for remedy in causes[0].remedies[:2])
    assert any(other.status == "finished" and other.accuracy > 0.75 for other in healed), causes[0].remedies


@pytest.mark.parametrize("more", [
    NET, DEEP, SUMS, HALF, [*NET, "clipping.kind=norm"], [*NET, "schedule.warmup_steps=80"], [*NET, "model.norm=batch"],
    [*SUMS, "model.norm=batch"],
    [*NET, "optimizer.kind=adam", "optimizer.lr=0.005"], [*NET, "model.activation=tanh", "model.init=xavier"],
    [*SUMS, "precision.dtype=fp16"],
])  # fmt: skip
def test_a_healthy_run_gives_no_finding_above_a_note(more: list[str]) -> None:
    run = trained(more)
    assert run.accuracy > 0.75
    assert [finding for finding in ranked_findings(run) if finding.severity != "info"] == []

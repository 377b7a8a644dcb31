"""A finding offers what fits the values in force, and nothing that is there already or cannot act."""

from __future__ import annotations

import pytest

from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.diagnosis.offered_remedies import with_fitting_remedies
from gradstudio.core.experiment import KNOBS, Experiment, parse_assignment


def finding(rule: str, *remedies: str) -> Finding:
    return Finding(rule, "critical", "Title", 0, 0, (), "", "", remedies)


@pytest.mark.parametrize(("knobs", "rule", "offered", "left"), [
    ([], "exploding_gradient", ["clipping.kind=norm"], ["clipping.kind=norm"]),
    (["clipping.kind=norm"], "exploding_gradient", ["clipping.kind=norm", "clipping.kind=per_tensor"], ["clipping.kind=per_tensor"]),
    ([], "nonfinite_gradient", ["precision.dtype=bf16", "precision.scaling=dynamic", "clipping.kind=norm"], ["clipping.kind=norm"]),
    (["precision.dtype=fp16"], "nonfinite_gradient", ["precision.dtype=bf16", "precision.scaling=dynamic"], ["precision.dtype=bf16"]),
    (["loss.kind=naive_log"], "nonfinite_loss", ["clipping.kind=norm"], ["loss.eps=1e-7", "loss.kind=auto"]),
    (["loss.kind=naive_sqrt", "loss.eps=1e-7"], "nonfinite_gradient", ["clipping.kind=norm"], ["loss.kind=auto"]),
    (["loss.kind=naive_log"], "exploding_gradient", ["clipping.kind=norm"], ["clipping.kind=norm"]),
    (["model.kind=transformer"], "vanishing_gradient", ["model.activation=relu model.init=he", "model.norm=batch", "model.residual=true"],
     ["schedule.warmup_steps=500"]),
    (["model.kind=cnn", "model.init=he"], "poor_initialization", ["model.init=orthogonal"],
     ["model.norm=batch model.residual=true model.norm_position=post", "model.norm=batch model.norm_position=post", "model.norm=batch"]),
    (["model.kind=cnn", "model.init_gain=0.1"], "poor_initialization", ["model.init=he model.init_gain=1"], ["model.init=he model.init_gain=1"]),
    ([], "vanishing_gradient", ["model.norm=batch model.norm_position=post", "model.norm_position=post"],
     ["model.norm=batch model.norm_position=post"]),
    (["problem.task=ring", "model.kind=gan", "optimizer.momentum=0.9"], "exploding_gradient", ["clipping.kind=norm"], ["optimizer.momentum=0"]),
    (["problem.task=ring", "model.kind=gan"], "exploding_gradient", ["clipping.kind=norm"], ["clipping.kind=norm"]),
    (["problem.task=ring", "model.kind=gan", "optimizer.momentum=0.9", "clipping.kind=norm"], "clipping_always", ["clipping.max_norm=2"],
     ["optimizer.momentum=0 clipping.kind=none"]),
    (["model.init_gain=1e6"], "nonfinite_loss", [], ["model.init=he model.init_gain=1"]),
    (["problem.input_scale=1e6", "loss.weight=10"], "update_ratio_high", ["optimizer.lr=0.01"],
     ["problem.input_scale=1 loss.weight=1", "optimizer.lr=0.01"]),
    (["loss.z_loss=1e5"], "exploding_gradient", ["optimizer.lr=0.01"], ["loss.z_loss=0.0001", "optimizer.lr=0.01"]),
    (["schedule.kind=linear"], "update_ratio_low", ["schedule.kind=constant", "optimizer.lr=1"], ["schedule.kind=constant"]),
    (["optimizer.lr=1e-7"], "update_ratio_low", ["schedule.kind=constant", "optimizer.lr=1"], ["optimizer.lr=1", "optimizer.lr=0.1"]),
    (["optimizer.kind=adam", "optimizer.eps=0.1", "optimizer.lr=1e-3"], "update_ratio_low", [], ["optimizer.eps=1e-8"]),
    (["precision.weights=bf16", "optimizer.kind=adam", "optimizer.lr=1e-3"], "update_ratio_low", [], ["precision.weights=bf16_stochastic"]),
    (["problem.task=pole", "model.kind=policy", "model.init_gain=50"], "saturated_activation", [], ["model.init=xavier model.init_gain=1"]),
    (["model.residual=true", "model.depth=40"], "poor_initialization", ["model.init=orthogonal model.init_gain=1"],
     ["model.init=he model.init_gain=0.158", "model.init=lsuv model.init_gain=1", "model.norm=batch"]),
    (["model.norm=batch"], "nothing_learned", [], []),
    (["problem.task=pole", "model.kind=policy"], "update_ratio_high", ["optimizer.lr=0.001"],
     ["clipping.kind=norm", "clipping.kind=per_tensor", "optimizer.kind=adam optimizer.lr=0.01"]),
    (["model.kind=transformer"], "attention_collapse", ["optimizer.lr=0.01", "model.qk_norm=true", "clipping.qk_clip=10"],
     ["optimizer.lr=0.01", "schedule.warmup_steps=500", "model.qk_norm=true", "clipping.qk_clip=10"]),
    (["model.kind=transformer"], "attention_collapse", [], []),
    (["model.kind=transformer", "schedule.warmup_steps=9", "clipping.qk_clip=5"], "attention_collapse",
     ["model.qk_norm=true", "clipping.qk_clip=10"], ["model.qk_norm=true"]),
    (["model.kind=transformer", "optimizer.kind=schedule_free", "schedule.warmup_steps=9"], "attention_collapse",
     ["model.qk_norm=true", "clipping.qk_clip=10"], ["model.qk_norm=true"]),
    (["mistakes.clip_after_step=true"], "loop_order", ["mistakes.clip_after_step=false", "mistakes.clip_before_unscale=false"],
     ["mistakes.clip_after_step=false"]),
])  # fmt: skip
def test_what_fits(knobs: list[str], rule: str, offered: list[str], left: list[str]) -> None:
    assert with_fitting_remedies(finding(rule, *offered), Experiment().with_texts(knobs)).remedies == tuple(left)


@pytest.mark.parametrize("kind", [kind for kind in KNOBS["loss.kind"].choices if kind != "auto"])
def test_every_loss_written_by_hand_has_a_remedy_that_can_be_set(kind: str) -> None:
    knobs = Experiment().with_value("loss.kind", kind)
    remedies = with_fitting_remedies(finding("nonfinite_loss", "clipping.kind=norm"), knobs).remedies
    assert "loss.kind=auto" in remedies
    for remedy in remedies:
        knobs.with_values(dict(map(parse_assignment, remedy.split())))

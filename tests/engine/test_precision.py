"""Number formats and the loss scale."""

from __future__ import annotations

import math
from itertools import islice

import pytest
import torch

from gradstudio.core.knobs import KnobError
from gradstudio.engine.models.mlp import MLP

FP16 = ["precision.dtype=fp16", "model.depth=1", "run.device=cpu"]


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("kind", ["mlp", "rnn"])
def test_learns_in_every_format(train, dtype, kind):
    rows = train(
        60,
        f"precision.dtype={dtype}",
        f"model.kind={kind}",
        "optimizer.kind=adam",
        "optimizer.lr=0.01",
        "problem.batch_size=32",
    )
    assert sum(row.loss for row in rows[-10:]) < 0.9 * sum(row.loss for row in rows[:10])
    assert {row.scale for row in rows} <= ({1.0} if dtype != "fp16" else {65536.0, 32768.0, 16384.0})


def test_the_scale_follows_the_documented_rule(build):
    trainer = build(
        *FP16,
        "precision.init_scale=1024",
        "precision.growth_interval=3",
        "precision.growth_factor=4",
        "precision.backoff_factor=0.25",
    )
    steps, expected, quiet = trainer.steps(), 1024.0, 0
    for step in range(16):
        overflow = step in (2, 7, 8)
        trainer.change("loss.weight", 1e30 if overflow else 1.0)  # 1e30 is beyond fp16
        weights = [parameter.detach().clone() for parameter in trainer.flat.parameters]
        row = next(steps)
        assert (row.scale, row.skipped) == (expected, overflow)
        assert all(map(torch.equal, weights, trainer.flat.parameters)) == overflow
        quiet = 0 if overflow else quiet + 1
        if overflow:
            assert row.nonfinite > 0 and row.update_ratio == 0 and not row.went_nonfinite
            expected *= 0.25
        elif quiet == 3:
            expected, quiet = expected * 4, 0
    assert trainer.scaler.get_scale() == expected


def test_a_skip_is_seen_where_the_scale_can_fall_no_more(train):
    rows = train(300, *FP16, "problem.input_scale=1e30", "model.width=2", "problem.batch_size=2")
    assert rows[-1].scale == 0 and rows[-2].scale == 0
    assert all(row.skipped for row in rows)


def test_a_static_scale_is_divided_out_without_a_check(train):
    quiet = train(3, *FP16, "precision.scaling=static", "precision.init_scale=1024")
    plain = train(3, "model.depth=1")
    for one, other in zip(quiet, plain, strict=True):
        assert one.scale == 1024 and not one.skipped
        assert one.grad_norm == pytest.approx(other.grad_norm, rel=0.02)
    overflown = train(2, *FP16, "precision.scaling=static", "precision.init_scale=1e9")
    assert overflown[0].nonfinite > 0 and overflown[0].went_nonfinite and not overflown[0].skipped
    assert math.isnan(overflown[1].loss)


def test_small_gradients_are_lost_without_a_scale(train):
    none = train(1, *FP16, "precision.scaling=none", "loss.weight=1e-7")[0]
    scaled = train(1, *FP16, "loss.weight=1e-7")[0]
    assert none.scale == 1 and none.layers[4][0] == 1, "every entry of the first weight's gradient is 0"
    assert scaled.layers[4][0] < 0.5 and scaled.grad_norm > none.grad_norm


def test_formats_change_live(build):
    trainer = build("run.seed=2", "precision.init_scale=512")
    steps = trainer.steps()
    scales = []
    for dtype in ("fp32", "fp16", "bf16", "fp16", "fp32"):
        trainer.change("precision.dtype", dtype)
        scales.append([row.scale for row in islice(steps, 2)])
    assert scales == [[1, 1], [512, 512], [1, 1], [512, 512], [1, 1]]


def test_the_growth_interval_changes_live_without_a_new_start(build):
    trainer = build(*FP16, "precision.init_scale=64", "precision.growth_interval=2")
    steps = trainer.steps()
    assert [row.scale for row in islice(steps, 4)] == [64, 64, 128, 128]
    trainer.change("precision.growth_interval", 3)
    assert [row.scale for row in islice(steps, 4)] == [256, 256, 256, 512]


def test_what_the_device_cannot_do_is_said_before_the_run(build, monkeypatch):
    """Where a model fails in a number format, building it does, with what to choose instead; whatever the processor can
    do."""

    def forward(self, inputs):
        if torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.float16:
            raise RuntimeError("could not create a primitive descriptor\nmore of it")
        return whole(self, inputs)

    whole = MLP.forward
    monkeypatch.setattr(MLP, "forward", forward)
    says = (
        r"precision.dtype = fp16 is not allowed with model.kind = mlp on cpu, .*\(could not create a primitive "
        r"descriptor\); allowed: bf16, fp32"
    )
    with pytest.raises(KnobError, match=says):
        build("precision.dtype=fp16")
    trainer = build()
    with pytest.raises(KnobError, match=says):
        trainer.change("precision.dtype", "fp16")
    assert trainer.experiment.precision.dtype == "fp32"
    next(trainer.steps())


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_an_lstm_trains_in_half_precision_or_is_refused(build, dtype):
    try:
        trainer = build("model.kind=lstm", f"precision.dtype={dtype}")
    except KnobError as refusal:
        assert "model.kind = lstm" in str(refusal) and "fp32" in str(refusal)
    else:
        next(trainer.steps())

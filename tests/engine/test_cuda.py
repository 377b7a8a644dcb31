"""What only a CUDA device can show: that the host does not wait for it, and that graphs are captured."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

import pytest
import torch

from gradstudio.engine.passes import forward_backward
from gradstudio.engine.passes.cuda_graph import Graph
from gradstudio.engine.step import reading

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype"),
]

# A task that plays its episodes on the host has to wait for what the model does.
CASES = [
    ["model.kind=mlp", "clipping.kind=norm"],
    ["model.kind=mlp", "model.norm=batch", "optimizer.kind=adam", "clipping.kind=agc"],
    ["model.kind=cnn", "clipping.kind=per_tensor", "problem.noise=0.1", "problem.outlier_every=3"],
    [
        "model.kind=transformer",
        "problem.task=characters",
        "problem.seq_len=8",
        "accumulation.steps=2",
        "clipping.kind=value",
    ],
    [
        "model.kind=rnn",
        "problem.task=adding",
        "problem.seq_len=8",
        "gradients.centralize=true",
        "gradients.noise_std=0.01",
    ],
    ["model.kind=lstm", "problem.task=copy", "problem.seq_len=8", "optimizer.kind=rmsprop"],
    ["model.kind=gan", "problem.task=ring"],
    ["model.kind=mlp", "problem.task=spirals", "precision.dtype=bf16"],
    ["model.kind=mlp", "precision.dtype=fp16", "precision.scaling=static"],
]


@contextmanager
def no_synchronization() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("patience", [1, math.inf], ids=["graphs", "eager"])
@pytest.mark.parametrize("knobs", CASES, ids=" ".join)
def test_a_step_does_not_wait_for_the_device(build, monkeypatch, knobs, patience):
    monkeypatch.setattr(forward_backward, "PATIENCE", patience)
    trainer = build("run.device=cuda", *knobs)
    for _ in range(8):  # graphs are captured and libraries set up by then
        trainer.advance()
    with no_synchronization():
        rows = [row for _ in range(10) for row in trainer.advance()]
    assert [row.step for row in rows] == list(range(8 - reading.LAG["cuda"], 18 - reading.LAG["cuda"]))


@pytest.mark.parametrize("knobs", CASES, ids=" ".join)
def test_rows_that_are_read_late_are_those_that_are_read_at_once(build, monkeypatch, knobs):
    late = build("run.device=cuda", *knobs)
    with monkeypatch.context() as patch:
        patch.delitem(reading.LAG, "cuda")
        direct = build("run.device=cuda", *knobs)
    rows = [row for _ in range(8) for row in late.advance()] + late.settle()
    for one, other in zip(rows, islice(direct.steps(), 8), strict=True):
        assert (one.step, one.loss, one.lr, one.loop) == (other.step, other.loss, other.lr, other.loop)
        assert [one.grad_norm, one.weight_norm, one.update_ratio] == pytest.approx(
            [other.grad_norm, other.weight_norm, other.update_ratio], rel=1e-12
        )
    assert torch.equal(late.flat.weights.view(torch.int32), direct.flat.weights.view(torch.int32))


@pytest.mark.parametrize("knobs", [
    ["model.kind=mlp"], ["model.kind=cnn"], ["model.kind=transformer", "problem.task=characters", "problem.seq_len=8"],
    ["model.kind=gan", "problem.task=ring"],
], ids=" ".join)  # fmt: skip
def test_a_pass_of_a_fixed_shape_becomes_a_graph(build, monkeypatch, knobs):
    graphed, plain = build("run.device=cuda", *knobs), build("run.device=cuda", *knobs)
    monkeypatch.setattr(plain.passes, "_record", lambda *_: None)
    for one, other in islice(zip(graphed.steps(), plain.steps(), strict=False), 8):
        assert one.loss == other.loss
    assert any(isinstance(known, Graph) for known in graphed.passes._known.values())
    assert torch.equal(graphed.flat.weights.view(torch.int32), plain.flat.weights.view(torch.int32))

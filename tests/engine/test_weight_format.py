"""Weights that are kept in bfloat16: rounded as torch rounds, by chance with the right mean, and the same again."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
import torch

from gradstudio.core.experiment import Experiment
from gradstudio.engine.snapshot import Snapshot
from gradstudio.engine.step.weight_format import stochastic
from gradstudio.engine.trainer import Trainer

SMALL = ["model.width=12", "problem.batch_size=8", "run.device=cpu", "optimizer.momentum=0.9"]


def trainer(*texts: str) -> Trainer:
    return Trainer(Experiment().with_texts([*SMALL, *texts]))


def test_rounding_by_chance_is_between_the_neighbours_and_right_on_average() -> None:
    """Against numpy: the two bfloat16 numbers around each value, and the share of the way between them."""
    values = torch.tensor([1.0, 1.001, -1.001, 3.3e-3, -2.7e5, 1e-40, 0.0, 1.0039062])
    down = (values.numpy().view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    up = ((values.numpy().view(np.uint32) & np.uint32(0xFFFF0000)) + np.uint32(0x10000)).view(np.float32)
    source, count = torch.Generator().manual_seed(1), 20_000
    drawn = stochastic(values.repeat(count, 1), source).numpy()
    assert ((drawn == down) | (drawn == up)).all()
    share = (values.numpy().astype(float) - down) / (up.astype(float) - down)
    assert np.allclose((drawn == up).mean(0), share, atol=4 * 0.5 / count**0.5)
    special = torch.tensor([np.inf, -np.inf, np.nan])
    assert torch.equal(stochastic(special, source).nan_to_num(7.0), special.nan_to_num(7.0))


@pytest.mark.parametrize("kind", ["bf16", "bf16_stochastic"])
def test_weights_are_bfloat16_at_every_step_and_the_same_after_a_rewind(kind: str) -> None:
    one = trainer(f"precision.weights={kind}", "problem.batch_size=4")
    assert torch.equal(one.flat.weights.data, one.flat.weights.data.bfloat16().float())
    list(islice(one.steps(), 4))
    kept = Snapshot.take(one)
    rows = [row.loss for row in islice(one.steps(), 6)]
    assert torch.equal(one.flat.weights.data, one.flat.weights.data.bfloat16().float())
    kept.restore(one)
    assert [row.loss for row in islice(one.steps(), 6)] == rows


def test_updates_below_half_a_bit_are_lost_to_the_nearest_and_not_to_chance() -> None:
    """How far the weights have come on the way that they take in fp32: 1 is all of it."""
    ways = {}
    for kind in ("fp32", "bf16", "bf16_stochastic"):
        one = trainer(f"precision.weights={kind}", "optimizer.lr=0.002", "optimizer.momentum=0")
        start = one.flat.weights.data.clone()
        list(islice(one.steps(), 200))
        ways[kind] = (one.flat.weights.data - start).double()
    along = {kind: (way @ ways["fp32"] / (ways["fp32"] @ ways["fp32"])).item() for kind, way in ways.items()}
    assert along["bf16"] < 0.5 and along["bf16_stochastic"] == pytest.approx(1, abs=0.15)

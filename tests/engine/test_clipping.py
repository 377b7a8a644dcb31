"""Each clipping rule against a formula of its own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import Parameter

from gradstudio.core.experiment import Clipping
from gradstudio.engine.clipping import CLIPPING


def parameters(scale=1.0):
    made = []
    for seed, (name, shape) in enumerate([("hidden.0.weight", (4, 3)), ("hidden.0.bias", (4,)), ("head.weight", (2, 4))]):
        source = torch.Generator().manual_seed(seed)
        parameter = Parameter(torch.randn(shape, generator=source))
        parameter.grad = torch.randn(shape, generator=source) * scale
        made.append((name, parameter))
    return made


def grads(named):
    return [parameter.grad.numpy().astype(np.float64) for _, parameter in named]


def clipped(kind, named, **knobs):
    CLIPPING[kind](named, Clipping(kind=kind, **knobs))
    return grads(named)


def test_norm_scales_all_alike():
    before, after = grads(parameters(10)), clipped("norm", parameters(10), max_norm=1.0)
    size = np.sqrt(sum((grad**2).sum() for grad in before))
    for one, other in zip(before, after, strict=True):
        np.testing.assert_allclose(other, one / (size + 1e-6), rtol=1e-6)


def test_value_cuts_every_entry():
    before, after = grads(parameters()), clipped("value", parameters(), clip_value=0.25)
    for one, other in zip(before, after, strict=True):
        np.testing.assert_allclose(other, one.clip(-0.25, 0.25), rtol=1e-6)


def test_per_layer_scales_each_tensor():
    before, after = grads(parameters()), clipped("per_layer", parameters(), max_norm=1.5)
    for one, other in zip(before, after, strict=True):
        np.testing.assert_allclose(other, one * min(1, 1.5 / (np.linalg.norm(one) + 1e-6)), rtol=1e-6)


@pytest.mark.parametrize("scale", [1e-12, 0.01, 1.0, 100.0])
def test_agc_limits_each_unit_but_the_head(scale):
    named = parameters(scale)
    named[0][1].data[1] = 0  # a unit without weights: taken as 1e-3 long
    weights, before = [parameter.detach().numpy().astype(np.float64) for _, parameter in named], grads(named)
    after = clipped("agc", named, agc_factor=0.02)
    for unit in range(4):
        largest, size = 0.02 * max(np.linalg.norm(weights[0][unit]), 1e-3), np.linalg.norm(before[0][unit])
        np.testing.assert_allclose(after[0][unit], before[0][unit] * (largest / max(size, 1e-6) if size > largest else 1), rtol=1e-5)
    largest, size = 0.02 * max(np.linalg.norm(weights[1]), 1e-3), np.linalg.norm(before[1])
    np.testing.assert_allclose(after[1], before[1] * min(1, largest / size), rtol=1e-5)
    np.testing.assert_array_equal(after[2], before[2])


@pytest.mark.parametrize("kind", CLIPPING)
def test_small_gradients_pass(kind):
    for one, other in zip(grads(parameters(1e-6)), clipped(kind, parameters(1e-6)), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", CLIPPING)
def test_a_nan_stays(kind):
    named = parameters()
    named[0][1].grad[0, 0] = torch.nan
    assert np.isnan(clipped(kind, named, agc_factor=1e-3)[0][0, 0])


@pytest.mark.parametrize("kind", CLIPPING)
@pytest.mark.parametrize("steps", [1, 2])
def test_measured_norms_agree_with_the_rule(train, kind, steps):
    for row in train(4, f"clipping.kind={kind}", "clipping.max_norm=0.2", "clipping.clip_value=0.01", f"accumulation.steps={steps}"):
        assert row.clipped_norm == pytest.approx(row.clip_coef * row.grad_norm, rel=1e-12)
        assert (row.clip_coef == 1) if kind == "none" else (row.clip_coef < 1)
        if kind == "norm":
            assert row.clipped_norm == pytest.approx(0.2, rel=1e-4)

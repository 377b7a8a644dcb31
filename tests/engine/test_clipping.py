"""Each clipping rule against a formula of its own."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn import Parameter

from gradstudio.core.experiment import Experiment
from gradstudio.core.knobs import KnobError
from gradstudio.core.sections.loop_knobs import Clipping
from gradstudio.core.sections.task_knobs import Model
from gradstudio.engine.models import MODELS, named_parameters
from gradstudio.engine.passes.flat import Flat
from gradstudio.engine.shape import Shape
from gradstudio.engine.step.clipping import CLIPPING, module_of
from gradstudio.engine.trainer import Trainer

PER_EXAMPLE = ("clipping.kind=per_example", "clipping.max_norm=1.5")

SHAPES = [
    ("hidden.0.weight", (4, 3)), ("hidden.0.bias", (4,)), ("hidden.1.weight", (5, 2, 3, 3)),
    ("rnn.weight_hh_l0", (4, 4)), ("head.weight", (2, 4)),
]  # fmt: skip


def parameters(scale=1.0):
    made = []
    for seed, (name, shape) in enumerate(SHAPES):
        source = torch.Generator().manual_seed(seed)
        parameter = Parameter(torch.randn(shape, generator=source))
        parameter.grad = torch.randn(shape, generator=source) * scale
        made.append((name, parameter))
    return made


def arrays(tensors):
    return [tensor.detach().numpy().astype(np.float64) for tensor in tensors]


def grads(named):
    return arrays(parameter.grad for _, parameter in named)


def clipped(kind, named, **knobs):
    CLIPPING[kind](Flat(named), Clipping(kind=kind, **knobs), {})
    return grads(named)


def unitwise_norm(array):
    """timm.utils.agc.unitwise_norm: one norm for a vector, one for each output of a weight."""
    if array.ndim <= 1:
        return np.sqrt((array**2).sum())
    return np.sqrt((array**2).sum(axis=tuple(range(1, array.ndim)), keepdims=True))


def adaptive(weight, grad, factor):
    """timm.utils.agc.adaptive_clip_grad with its default eps."""
    largest, size = np.maximum(unitwise_norm(weight), 1e-3) * factor, unitwise_norm(grad)
    with np.errstate(invalid="ignore"):  # 0 times an infinite gradient
        return np.where(size < largest, grad, grad * (largest / np.maximum(size, 1e-6)))


def test_norm_scales_all_alike():
    before, after = grads(parameters(10)), clipped("norm", parameters(10), max_norm=1.0)
    size = np.sqrt(sum((grad**2).sum() for grad in before))
    for one, other in zip(before, after, strict=True):
        np.testing.assert_allclose(other, one / (size + 1e-6), rtol=1e-6)


def test_value_cuts_every_entry():
    before, after = grads(parameters()), clipped("value", parameters(), clip_value=0.25)
    for one, other in zip(before, after, strict=True):
        np.testing.assert_allclose(other, one.clip(-0.25, 0.25), rtol=1e-6)


def test_per_tensor_scales_each_tensor():
    before, after = grads(parameters()), clipped("per_tensor", parameters(), max_norm=1.5)
    for one, other in zip(before, after, strict=True):
        np.testing.assert_allclose(other, one * min(1, 1.5 / (np.linalg.norm(one) + 1e-6)), rtol=1e-6)


def test_per_module_scales_weight_and_bias_together():
    before, after = grads(parameters()), clipped("per_module", parameters(), max_norm=1.5)
    for module in ((0, 1), (2,), (3,), (4,)):
        norm = np.sqrt(sum((before[at] ** 2).sum() for at in module))
        for at in module:
            np.testing.assert_allclose(after[at], before[at] * min(1, 1.5 / (norm + 1e-6)), rtol=1e-6)
    assert module_of("blocks.0.attention.query.weight") == module_of("blocks.0.attention.output.bias")
    assert module_of("blocks.0.attention_norm.weight") == "blocks.0.attention_norm"


def lengths(kind: str, norms: list[float], **knobs: float) -> list[float]:
    """Lengths after clipping of gradients of one tensor that are so long."""
    flat, memory, found = Flat([("hidden.0.weight", Parameter(torch.zeros(1)))]), {}, []
    for norm in norms:
        flat.grads[0].fill_(norm)
        CLIPPING[kind](flat, Clipping(kind=kind, **knobs), memory)
        found.append(flat.grads[0].item())
    return found


def test_zclip_is_that_of_its_paper():
    norms = [*np.random.default_rng(1).uniform(1, 2, 60), 40.0, math.inf, 1.5, 3.0, 1.0]
    mean, variance, expected = float(np.mean(norms[:25])), float(np.var(norms[:25])), norms[:25]
    for norm in norms[25:]:
        z = (norm - mean) / math.sqrt(variance)
        left = mean + 2.5**2 / z * math.sqrt(variance) if math.isfinite(z) and z > 2.5 else norm
        if math.isfinite(norm):
            mean = 0.97 * mean + 0.03 * left
            variance = 0.97 * variance + 0.03 * (left - mean) ** 2
        expected = [*expected, left]
    np.testing.assert_allclose(lengths("zclip", norms), expected, rtol=1e-4)
    assert expected[60] < 2 and expected[61] == math.inf


def test_adagc_is_that_of_its_paper():
    norms = [*np.random.default_rng(1).uniform(0.5, 2, 100), 40.0, 0.3, math.inf, 0.6]
    usual, expected = math.inf, []
    for step, norm in enumerate(norms):
        left = min(norm, 1.0 if step < 100 else 1.05 * usual) if math.isfinite(norm) else norm
        if math.isfinite(norm):
            usual = min(usual, left) if step < 100 else 0.98 * usual + 0.02 * left
        expected.append(left)
    np.testing.assert_allclose(lengths("adagc", norms), expected, rtol=1e-5)


def test_per_example_is_the_mean_of_clipped_gradients():
    """Abadi 2016, algorithm 1, without its noise; and the row has the norm of what nobody clipped."""
    knobs = ("problem.batch_size=1", "accumulation.steps=6", "run.device=cpu", "model.width=8")
    plain, clips = (Trainer(Experiment().with_texts([*knobs, *more])) for more in ([], PER_EXAMPLE))
    examples = plain.next_batches()
    gradients = [
        torch.cat([each.flatten() for each in torch.autograd.grad(plain.compute(*example, divisor=1)[0], weights)])
        for weights in [plain.flat.parameters] for example in examples
    ]  # fmt: skip
    lengths = [gradient.norm().item() for gradient in gradients]
    assert min(lengths) < 1.5 < max(lengths), "some are clipped, and others are not"
    mean = sum(gradient * min(1, 1.5 / length) for gradient, length in zip(gradients, lengths, strict=True)) / 6
    row = next(clips.steps())
    np.testing.assert_allclose(torch.cat([grad.flatten() for grad in clips.flat.grads]), mean, rtol=1e-4, atol=1e-7)
    assert row.grad_norm == pytest.approx((sum(gradients) / 6).norm().item(), rel=1e-5)
    assert row.clipped_norm == pytest.approx(mean.norm().item(), rel=1e-5)


@pytest.mark.parametrize("other", ["problem.batch_size=2", "precision.dtype=fp16", "mistakes.never_zero_grad=true"])
def test_per_example_goes_with_single_examples_alone(other):
    with pytest.raises(KnobError):
        Experiment().with_texts(["problem.batch_size=1", *PER_EXAMPLE, other])


@pytest.mark.parametrize("scale", [1e-12, 0.01, 1.0, 100.0])
def test_agc_is_timm_s(scale):
    named = parameters(scale)
    named[0][1].data[1] = 0  # a unit without weights: taken as 1e-3 long
    weights, before = arrays(parameter for _, parameter in named), grads(named)
    after = clipped("agc", named, agc_factor=0.02)
    for (name, _), weight, one, other in zip(named, weights, before, after, strict=True):
        np.testing.assert_allclose(other, one if name == "head.weight" else adaptive(weight, one, 0.02), rtol=1e-5)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_agc_does_with_a_nan_what_timm_does(value):
    named = parameters()
    for _, parameter in named:
        parameter.grad.view(-1)[0] = value
    expected = [
        adaptive(*pair, 0.01)
        for pair in zip(arrays(parameter for _, parameter in named[:-1]), grads(named), strict=False)
    ]
    for one, other in zip(expected, clipped("agc", named), strict=False):
        np.testing.assert_allclose(other, one, rtol=1e-5)


@pytest.mark.parametrize("kind", MODELS)
def test_agc_leaves_every_head_out(kind):
    torch.manual_seed(0)
    named = named_parameters(MODELS[kind](Model(kind=kind, width=8, depth=2), Shape(2, 2, 3)))
    for _, parameter in named:
        parameter.grad = torch.randn(parameter.shape)
    weights, before = arrays(parameter for _, parameter in named), grads(named)
    heads = []
    for (name, _), weight, one, other in zip(named, weights, before, clipped("agc", named), strict=True):
        if "head" in name:
            heads.append(name)
            np.testing.assert_array_equal(other, one)
        else:
            assert np.linalg.norm(other) < np.linalg.norm(one)
            np.testing.assert_allclose(other, adaptive(weight, one, 0.01), rtol=1e-5)
    players = ("generator.", "discriminator.") if kind == "gan" else ("",)
    assert heads == [f"{player}head.{part}" for player in players for part in ("weight", "bias")]


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
    for row in train(
        4, f"clipping.kind={kind}", "clipping.max_norm=0.2", "clipping.clip_value=0.01", f"accumulation.steps={steps}"
    ):
        assert row.clipped_norm == pytest.approx(row.clip_coef * row.grad_norm, rel=1e-12)
        assert (row.clip_coef == 1) if kind in ("none", "zclip") else (row.clip_coef < 1)
        if kind == "norm":
            assert row.clipped_norm == pytest.approx(0.2, rel=1e-4)

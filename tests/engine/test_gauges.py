"""What is measured is right, over the whole range of float32, and never hides a NaN."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from gradstudio.core.history import COLUMNS, LAYER_METRICS, History
from gradstudio.core.row import Layer
from gradstudio.core.unknown import is_known, known_mask
from gradstudio.engine.gauges.every_step import Gauges, cosine
from gradstudio.engine.passes.flat import Layout
from gradstudio.engine.step import reading
from gradstudio.engine.step.clipping import CLIPPING, CLIPPING_ON_DEVICE, value


def flat(*tensors):
    """The tensors one after the other, as Flat lays them out, NaN between them, and gauges for them."""
    layout = Layout([tensor.numel() for tensor in tensors])
    whole = torch.full((layout.length,), math.nan)
    for place, tensor in zip(layout.views(whole, tensors), tensors, strict=True):
        place.copy_(tensor)
    return Gauges(layout), whole


@pytest.mark.parametrize("size", [1e-38, 1e-30, 1e-22, 1.0, 1e18, 1e25, 1e38])
def test_norms_are_right_at_any_size(size):
    gauges, entries = flat(torch.full((10, 10), size), torch.full((44,), size))
    assert gauges.norms(entries)[1].tolist() == pytest.approx([10 * size, math.sqrt(44) * size], rel=1e-6)
    assert gauges.norm(entries) == pytest.approx(12 * size, rel=1e-6)


def test_norm_is_torch_s_own_in_float64():
    grads = [torch.randn(shape, generator=torch.Generator().manual_seed(1)) for shape in ((64, 64), (64,), (10, 64))]
    gauges, whole = flat(*grads)
    assert gauges.norm(whole) == pytest.approx(
        torch.nn.utils.get_total_norm([grad.double() for grad in grads]).item(), rel=1e-15
    )


def test_gradient():
    gauges, whole = flat(torch.tensor([[3.0, 0.0], [-4.0, 0.0]]), torch.tensor([0.0, 12.0]))
    found = gauges.measure_gradient(whole)
    assert (found.norm, found.nonfinite) == (13.0, 0)
    np.testing.assert_array_equal(found.norms, [5, 12])
    np.testing.assert_array_equal(found.largest, [4, 12])
    np.testing.assert_array_equal(found.zero_shares, [0.5, 0.5])
    np.testing.assert_array_equal(found.nonfinite_shares, [0, 0])


@pytest.mark.parametrize("scale", [1.0, 1024.0])
def test_mean_and_deviation_are_torch_s_own(scale):
    grads = [torch.randn(shape, generator=torch.Generator().manual_seed(1)) for shape in ((64, 64), (64,), (1,))]
    grads[1] += 30
    grads.append(torch.full((5, 1000), 0.1))
    gauges, whole = flat(*grads)
    found = gauges.measure_gradient(whole * scale, scale)
    wanted = torch.stack([grad.double().mean() for grad in grads])
    np.testing.assert_allclose(found.means, wanted, rtol=1e-12)
    history = History(tuple(Layer(str(place), "weight", grad.numel()) for place, grad in enumerate(grads)))
    metrics = np.zeros((len(LAYER_METRICS), 1, len(grads)), np.float32)
    metrics[0], metrics[6] = found.norms, found.means
    history.extend(np.zeros((1, len(COLUMNS))), metrics)
    wanted = torch.stack([grad.double().std(correction=0) for grad in grads])
    np.testing.assert_allclose(history.layer_metric("grad_std")[0], wanted, rtol=1e-4, atol=1e-9)
    assert history.layer_metric("grad_std")[0, 2:].tolist() == [0, 0], "their entries are all the same"


@pytest.mark.parametrize("late", [False, True])
def test_a_clip_by_value_says_how_many_entries_it_cut(build, monkeypatch, late):
    if late:
        monkeypatch.setitem(reading.LAG, "cpu", 0)
    limit = 1e-3
    trainer = build("clipping.kind=value", f"clipping.clip_value={limit}")
    shares: list[list[float]] = []

    def counted(flat, knobs, memory):
        shares.append([(grad.abs() > limit).double().mean().item() for grad in flat.grads])
        return value(flat, knobs, memory)

    monkeypatch.setitem(CLIPPING_ON_DEVICE if late else CLIPPING, "value", counted)
    rows = [*trainer.advance(), *trainer.advance()]
    for row, wanted in zip(rows, shares, strict=True):
        assert row.layers[7].tolist() == pytest.approx(wanted) and max(wanted) > 0 and min(wanted) < 1
    unclipped = next(build("clipping.kind=norm", "clipping.max_norm=0.01").steps())
    assert not known_mask(unclipped.layers[7]).any() and known_mask(unclipped.layers[:7]).all()


def test_an_infinite_entry_is_cut_and_a_nan_is_not():
    gauges, before = flat(torch.tensor([3.0, math.nan, -math.inf, 0.5]), torch.ones(2))
    after = before.clamp(-1, 1)
    assert gauges.changed_shares(before, after).tolist() == [0.5, 0]


def test_a_scaled_gradient_is_measured_as_if_it_were_not():
    gauges, whole = flat(torch.tensor([[3.0, 0.0], [-4.0, 0.0]]), torch.tensor([0.0, 12.0]))
    plain, scaled = gauges.measure_gradient(whole), gauges.measure_gradient(whole * 1024, 1024)
    assert plain.norm == scaled.norm
    np.testing.assert_array_equal(plain.largest, scaled.largest)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nothing_hides_a_nonfinite_entry(bad):
    gauges, whole = flat(torch.ones(4), torch.tensor([1.0, bad, 0.0, 1.0]))
    found = gauges.measure_gradient(whole)
    assert found.nonfinite == 1
    assert not math.isfinite(found.norm) and math.isnan(bad) == math.isnan(found.norm)
    np.testing.assert_array_equal(found.nonfinite_shares, [0, 0.25])
    assert found.norms[0] == 2 and not math.isfinite(found.norms[1])
    assert found.largest[0] == 1 and not math.isfinite(found.largest[1])


def test_change():
    gauges, before = flat(torch.tensor([3.0, 4.0]), torch.zeros(2), torch.zeros(2))
    after = flat(torch.tensor([3.0, 3.0]), torch.zeros(2), torch.ones(2))[1]
    gradient = flat(torch.tensor([7.0, 2.0]), torch.zeros(2), torch.tensor([-1.0, -5.0]))[1]
    found = gauges.measure_change(before, after, gradient)
    assert (found.weight_norm, found.norm, found.along_gradient) == (5, math.sqrt(3), -8)
    assert found.update_ratio == pytest.approx(math.sqrt(3) / 5)
    np.testing.assert_array_equal(found.update_ratios, [0.2, 0, math.inf])
    gauges, before = flat(torch.ones(2))
    assert math.isnan(gauges.measure_change(before, flat(torch.tensor([1.0, math.nan]))[1], before).update_ratio)


def test_a_change_is_what_it_is_and_not_what_float32_makes_of_it():
    gauges, before = flat(torch.tensor([1.0]), torch.tensor([-3e38]))
    found = gauges.measure_change(before, flat(torch.tensor([-1e-9]), torch.tensor([3e38]))[1], before)
    assert found.update_ratios.tolist() == pytest.approx([1 + 1e-9, 2], rel=1e-12)
    assert cosine(-found.along_gradient, gauges.norm(before), found.norm) == 1


@pytest.mark.parametrize("size", [1e-38, 1e-20, 1.0, 1e20, 1e38])
def test_a_cosine_is_right_at_any_size(size):
    gauges, one = flat(torch.full((3,), size), torch.zeros(1))
    other = flat(torch.tensor([size, size, -size]), torch.zeros(1))[1]
    assert cosine(gauges.product(one, other), gauges.norm(one), gauges.norm(other)) == pytest.approx(1 / 3, rel=1e-6)
    assert cosine(gauges.product(one, one), gauges.norm(one), gauges.norm(one)) <= 1


def test_what_has_no_direction_has_no_cosine_and_what_is_not_finite_has_nan():
    assert not is_known(cosine(0.0, 0.0, 1.0)) and not is_known(cosine(0.0, 1.0, 0.0))
    for product, norm in ((math.nan, math.nan), (math.inf, math.inf), (math.nan, math.inf), (-math.inf, math.inf)):
        found = cosine(product, norm, 1.0)
        assert math.isnan(found) and is_known(found)


@pytest.mark.parametrize("sizes", [[1], [15, 16, 17], [64, 1, 1, 640, 3], [16, 16]])
def test_every_tensor_is_measured_by_itself(sizes):
    source = torch.Generator().manual_seed(len(sizes))
    tensors = [torch.randn(size, generator=source).clamp(min=0) for size in sizes]
    tensors[-1][-1] = math.inf
    gauges, whole = flat(*tensors)
    found, arrays = gauges.measure_gradient(whole), [tensor.double().numpy() for tensor in tensors]
    np.testing.assert_allclose(found.norms, [np.linalg.norm(array) for array in arrays])
    np.testing.assert_array_equal(found.largest, [array.max() for array in arrays])
    np.testing.assert_array_equal(found.zero_shares, [(array == 0).mean() for array in arrays])
    np.testing.assert_array_equal(found.nonfinite_shares, [(~np.isfinite(array)).mean() for array in arrays])


def test_rows_measure_every_layer(build):
    trainer = build("optimizer.lr=0.1")
    before = [parameter.detach().clone() for parameter in trainer.flat.parameters]
    row = next(trainer.steps())
    metrics = dict(zip(LAYER_METRICS, row.layers, strict=True))
    assert row.layers.shape == (len(LAYER_METRICS), len(trainer.layers))
    for index, (old, new) in enumerate(zip(before, trainer.flat.parameters, strict=True)):
        old, moved, grad = (
            old.double().numpy(),
            (new.detach().double() - old.double()).numpy(),
            new.grad.double().numpy(),
        )
        assert metrics["grad_norm"][index] == pytest.approx(np.linalg.norm(grad), rel=1e-12)
        assert metrics["weight_norm"][index] == pytest.approx(np.linalg.norm(old), rel=1e-12)
        assert metrics["update_ratio"][index] == pytest.approx(np.linalg.norm(moved) / np.linalg.norm(old), rel=1e-12)
        assert metrics["largest_grad"][index] == abs(grad).max()
        assert metrics["zero_share"][index] == pytest.approx((grad == 0).mean())
        assert metrics["grad_mean"][index] == pytest.approx(grad.mean(), rel=1e-9, abs=1e-18)
    assert row.grad_norm == pytest.approx(np.linalg.norm(metrics["grad_norm"]))
    assert row.weight_norm == pytest.approx(np.linalg.norm(metrics["weight_norm"]))


def test_a_diverged_run_shows_its_nans(build):
    trainer = build("optimizer.lr=1e6", "problem.scaling=raw")
    rows = [row for _, row in zip(range(20), trainer.steps(), strict=False)]
    assert (
        math.isnan(rows[-1].loss)
        and math.isnan(rows[-1].grad_norm)
        and math.isnan(rows[-1].accuracy)
        and rows[-1].went_nonfinite
    )
    assert (
        rows[-1].nonfinite
        == sum(int((~torch.isfinite(parameter.grad)).sum()) for parameter in trainer.flat.parameters)
        > 0
    )
    assert math.isnan(trainer.evaluate())
    assert all(row.clip_coef == 1 for row in rows), "nothing was clipped"

"""What compiled and plain loops measure of tensors that lie anywhere, against numpy in 64 bits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from gradstudio.core.columns import LAYER_METRICS
from gradstudio.engine.gauges import kernels, plain_loops, scattered

SIZES = (1, 3, 64, 1024, 1025, 5000)
NEAR = 1e-12  # relative, of what is added up in 64 bits
NARROW = 1e-7  # of what is kept in 32


@pytest.fixture(autouse=True, params=[scattered, plain_loops], ids=["compiled", "plain"])
def loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "scattered", request.param)


def _tensors(scale: float, seed: int) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [(scale * random.standard_normal(size)).astype(np.float32) for size in SIZES]


def _places(tensors: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return their addresses, starts in a flat one, and sizes."""
    sizes = np.array([tensor.size for tensor in tensors])
    return np.array([tensor.ctypes.data for tensor in tensors]), np.cumsum(sizes) - sizes, sizes


def _norm(values: Any) -> float:
    return float(np.linalg.norm(np.asarray(values, np.float64)))


def _measured(tensors: list[np.ndarray], scale: float = 1.0) -> tuple[float, int, np.ndarray]:
    places, _, sizes = _places(tensors)
    layers = np.full((len(LAYER_METRICS), len(tensors)), -1, np.float32)
    return *scattered.measure(places, sizes, scale, layers), layers


@pytest.mark.parametrize("scale", [1e-42, 1e-30, 1e-21, 1e-12, 1e-3, 1.0, 1e12, 1e21, 1e36])
def test_gradients_of_every_size_have_their_norm(scale: float) -> None:
    tensors = _tensors(scale, seed=1)
    tensors[3][::3] = 0
    norm, broken, layers = _measured(tensors, scale=2.0)
    assert broken == 0 and norm == pytest.approx(_norm(np.concatenate(tensors)) / 2, rel=NEAR)
    assert layers[0].tolist() == pytest.approx([_norm(each) / 2 for each in tensors], rel=NARROW, abs=2e-45)
    assert layers[3].tolist() == pytest.approx([float(abs(each).max()) / 2 for each in tensors], rel=NARROW, abs=2e-45)
    assert layers[4].tolist() == pytest.approx([float((each == 0).mean()) for each in tensors])
    means = [float(each.mean(dtype=float)) / 2 for each in tensors]
    assert layers[6].tolist() == pytest.approx(means, rel=NARROW, abs=max(1e-14 * scale, 2e-45))
    places, starts, sizes = _places(tensors)
    flat = np.empty(sum(SIZES), np.float32)
    assert scattered.copy_and_norm(places, places, starts, sizes, flat) == 2 * norm  # to the last bit
    assert np.array_equal(flat, np.concatenate(tensors))


def test_small_and_large_entries_beside_each_other() -> None:
    mixed = np.stack([_tensors(scale, seed=2)[-1] for scale in (1e-25, 1.0, 1e30)], 1).ravel()
    same = np.full(100_000, 0.1, np.float32)  # whose rounding errors have one sign
    for tensor in (mixed, same):
        assert _measured([tensor])[0] == pytest.approx(_norm(tensor), rel=NEAR)


def test_what_is_not_finite_is_counted_and_shown() -> None:
    for value in (math.nan, math.inf, -math.inf):
        tensors = _tensors(1.0, seed=3)
        tensors[5][4000:4002] = value
        norm, broken, layers = _measured(tensors)
        assert broken == 2 and not math.isfinite(norm) and layers[5, 5] == pytest.approx(2 / 5000)
        assert np.isfinite(layers[0, :5]).all() and not np.isfinite(layers[0, 5])
        assert math.isnan(norm) == math.isnan(value)


def _change(
    old: list[np.ndarray], new: list[np.ndarray], along: list[np.ndarray] | None
) -> tuple[tuple[float, float, float], np.ndarray]:
    places, starts, sizes = _places(new)
    beside = np.zeros_like(places) if along is None else _places(along)[0]
    layers = np.full((6, len(new)), -1, np.float32)
    return scattered.change(np.concatenate(old), places, beside, starts, sizes, layers), layers


@pytest.mark.parametrize("gradient", [1e-33, 1e-21, 1e-9, 1.0, 1e21, 1e36])
@pytest.mark.parametrize("step", [1e-3, 1e-24, 1e24])
def test_a_change_and_its_direction(gradient: float, step: float) -> None:
    old, along = _tensors(1e-2, seed=4), _tensors(gradient, seed=5)
    with np.errstate(over="ignore"):
        new = [was - np.float32(step / gradient) * by for was, by in zip(old, along, strict=True)]
    new[0], new[4] = old[0].copy(), old[4].copy()
    (before, moved, product), layers = _change(old, new, along)
    moves = [now.astype(float) - was for now, was in zip(new, old, strict=True)]
    wanted = float(sum(move @ by.astype(float) for move, by in zip(moves, along, strict=True)))
    assert before == pytest.approx(_norm(np.concatenate(old)), rel=NEAR)
    assert moved == pytest.approx(_norm(np.concatenate(moves)), rel=NEAR)
    assert product == pytest.approx(wanted, rel=NEAR)
    assert layers[1].tolist() == pytest.approx(list(map(_norm, old)), rel=NARROW)
    ratios = [_norm(move) / _norm(was) for move, was in zip(moves, old, strict=True)]
    assert layers[2].tolist() == pytest.approx(ratios, rel=NARROW)


def test_what_does_not_move_has_no_direction_and_hides_no_nan() -> None:
    weights, gradients = _tensors(1.0, seed=6), _tensors(1.0, seed=7)
    assert _change(weights, weights, gradients)[0][1:] == (0, 0)
    assert _change(weights, weights, None)[0][1:] == (0, 0)
    for value in (math.nan, math.inf):
        gradients[5][10] = value
        assert math.isnan(_change(weights, weights, gradients)[0][2])
    moved = [each.copy() for each in weights]
    moved[5][10] = math.nan
    (before, moves, _), layers = _change(weights, moved, None)
    assert math.isfinite(before) and math.isnan(moves) and np.isnan(layers[2]).tolist() == [False] * 5 + [True]


def test_flat_tensors_are_measured_alike_with_and_without_a_compiler() -> None:
    one, other, along = (np.concatenate(_tensors(scale, seed)) for scale, seed in ((1e-3, 8), (1e-3, 9), (1e20, 10)))
    one[7], one[5000:5003] = 0, (math.nan, -math.inf, 0)
    starts = np.cumsum(SIZES) - SIZES
    stops = starts + SIZES
    found = []
    for loops in (kernels, plain_loops):
        norms, weights, moves, zeros, bad, sums = np.full((6, len(SIZES)), -1.0)
        changed = np.full(len(SIZES), -1.0)
        largest = np.zeros(len(SIZES), np.float32)
        whole = loops.norms(one, starts, stops, norms)
        product = loops.product(other, along, starts, stops)
        change = loops.norms_of_change(other, along, one, starts, stops, weights, moves)
        loops.inspect(one, one.view(np.int32), starts, stops, largest.view(np.int32), zeros, bad, sums)
        loops.count_differing(one, np.clip(one, -1e-3, 1e-3), starts, stops, changed)
        figures = norms, weights, moves, zeros, bad, largest, sums, changed
        found.append(np.concatenate([[whole, product, *change], *figures]))
    assert changed.sum() == (abs(one) > np.float32(1e-3)).sum() > 0
    assert found[0].tolist() == pytest.approx(found[1].tolist(), rel=NEAR, nan_ok=True)
    assert np.isnan(found[0]).any() and zeros.sum() == 2 and bad.sum() == 2

from __future__ import annotations

import math
import threading

import numpy as np
import pytest

from gradstudio.core.history import BLOCK, COLUMNS, LAYER_METRICS, History, Layer, Row

LAYERS = (Layer("first.weight", "weight", 6), Layer("first.bias", "bias", 3))


def row(step: int, loss: float = 1.0, layers: np.ndarray | float = 0.0, nonfinite: int = 0, skipped: bool = False) -> Row:
    grid = np.broadcast_to(np.asarray(layers, float), (len(LAYER_METRICS), len(LAYERS)))
    return Row(
        step=step, loss=loss, grad_norm=2.0, clipped_norm=1.0, clip_coef=0.5, lr=0.1, scale=1.0, skipped=skipped, nonfinite=nonfinite,
        update_ratio=1e-3, weight_norm=7.0, accuracy=math.nan, step_seconds=0.01, layers=grid,
    )  # fmt: skip


def filled(count: int) -> History:
    """Row n has loss n + 1 and n + 1 + 1000 * metric + layer / 2 in the layers, so that every entry tells where it is from."""
    history = History(LAYERS)
    place = 1000 * np.arange(len(LAYER_METRICS))[:, None] + np.arange(len(LAYERS)) / 2
    for step in range(count):
        history.append(row(step, step + 1.0, step + 1 + place))
    return history


@pytest.fixture(scope="module")
def long() -> History:
    return filled(2 * BLOCK + 3)


@pytest.mark.parametrize("count", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1])
def test_every_row_comes_back(count: int) -> None:
    history = filled(count)
    assert len(history) == count
    assert history.column("step").tolist() == list(range(count))
    assert history.layer_metric("weight_norm").shape == (count, 2)
    assert history.layer_metric("weight_norm")[:, 1].tolist() == [1001.5 + step for step in range(count)]


@pytest.mark.parametrize("start", [-5, 0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 3, 3 * BLOCK])
@pytest.mark.parametrize("stop", [None, 0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 2, 4 * BLOCK])
def test_any_stretch_across_blocks(long: History, start: int, stop: int | None) -> None:
    expected = (np.arange(len(long)) + 1.0)[max(start, 0) : stop]
    assert long.column("loss", start, stop).tolist() == expected.tolist()
    assert long.column("loss", start, stop).dtype == np.float64
    shares = long.layer_metric("nonfinite_share", start, stop)
    assert shares.tolist() == [[value + 5000, value + 5000.5] for value in expected]
    assert shares.dtype == np.float32


def test_one_row(long: History) -> None:
    assert long.row(BLOCK)["loss"] == BLOCK + 1
    assert list(long.row(0)) == list(COLUMNS)
    for step in (-1, len(long)):
        with pytest.raises(IndexError, match="measured steps"):
            long.row(step)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.0, 5e-324, 1e308])
def test_odd_values_are_kept_as_they_are(value: float) -> None:
    history = History(LAYERS)
    history.append(row(0, value, value))
    assert history.column("loss").tobytes() == np.float64(value).tobytes()
    with np.errstate(over="ignore"):
        kept = np.full(2, value).astype(np.float32)
    assert history.layer_metric("grad_norm")[0].tobytes() == kept.tobytes()


@pytest.mark.parametrize("value", [1e-38, 3e38])
def test_layer_norms_are_right_over_the_whole_range(value: float) -> None:
    history = History(LAYERS)
    history.append(row(0, 1.0, value))
    assert history.layer_metric("grad_norm")[0] == pytest.approx(value, rel=1e-6)


def test_a_view_stays_valid_while_the_writer_goes_on() -> None:
    history = filled(10)
    view = history.column("loss")
    for step in range(10, BLOCK + 10):
        history.append(row(step))
    assert view.tolist() == [step + 1.0 for step in range(10)]


def test_a_reader_beside_the_writer_never_sees_garbage() -> None:
    history, total = History(LAYERS), 3 * BLOCK
    writer = threading.Thread(target=lambda: [history.append(row(step, step + 1.0, step + 1.0)) for step in range(total)])
    writer.start()
    looks = partial = seen = 0
    while seen < total:
        seen = len(history)
        losses, norms = history.column("loss", seen - 50, seen), history.layer_metric("grad_norm", 0, seen)
        assert (losses == np.arange(max(seen - 50, 0), seen) + 1.0).all()
        assert len(norms) == seen and (norms == np.arange(seen)[:, None] + 1.0).all()
        assert not seen or history.row(seen - 1)["loss"] == seen
        looks, partial = looks + 1, partial + (0 < seen < total)
    writer.join()
    assert partial, f"the reader looked {looks} times and never while the writer wrote"


@pytest.mark.parametrize(
    ("loss", "nonfinite", "skipped", "went"),
    [
        (1.0, 0, False, False),
        (math.nan, 0, False, True),
        (math.inf, 0, False, True),
        (1.0, 3, False, True),
        (1.0, 3, True, False),
        (math.nan, 3, True, True),
    ],
)
def test_went_nonfinite(loss: float, nonfinite: int, skipped: bool, went: bool) -> None:
    assert row(0, loss, nonfinite=nonfinite, skipped=skipped).went_nonfinite is went

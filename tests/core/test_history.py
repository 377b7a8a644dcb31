from __future__ import annotations

import gc
import math
import threading
from pathlib import Path

import numpy as np
import pytest
from waiting import PATIENCE, join

from gradstudio.core import files, row_blocks
from gradstudio.core import history as histories
from gradstudio.core.history import BLOCK, COLUMNS, LAYER_METRICS, LOOK_EVERY, History
from gradstudio.core.loop_calls import Loop
from gradstudio.core.row import AccumulationError, Activation, Activations, Layer, Row, Settings
from gradstudio.core.spill import SpilledArray

LAYERS = (Layer("first.weight", "weight", 6), Layer("first.bias", "bias", 3))


def row(
    step: int, loss: float = 1.0, layers: np.ndarray | float = 0.0, nonfinite: int = 0, skipped: bool = False
) -> Row:
    grid = np.broadcast_to(np.asarray(layers, float), (len(LAYER_METRICS), len(LAYERS)))
    return Row(
        step=step, loss=loss, grad_norm=2.0, clipped_norm=1.0, clip_coef=0.5, lr=0.1, scale=1.0, skipped=skipped,
        nonfinite=nonfinite,
        update_ratio=1e-3, weight_norm=7.0, accuracy=math.nan, step_seconds=0.01, layers=grid,
    )  # fmt: skip


def filled(count: int) -> History:
    """Row n has loss n + 1 and n + 1 + 1000 * metric + layer / 2 in the layers, so that every entry tells where it is
    from."""
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


def test_gradient_by_weight_is_derived_at_any_stretch() -> None:
    grid = np.zeros((len(LAYER_METRICS), 2))
    grid[0], grid[1] = [3.0, 0.5], [4.0, 0.0]  # the second layer has weights of 0
    history = History(LAYERS)
    for step in range(BLOCK + 2):
        history.append(row(step, layers=grid if step else np.zeros_like(grid)))
    ratios = history.layer_metric("grad_ratio", BLOCK - 1)
    assert ratios.dtype == np.float32 and ratios.tolist() == [[0.75, math.inf]] * 3
    assert history.layer_metric("grad_ratio", 0, 1).tolist() == [[0, 0]], "no gradient of no weights, as for updates"


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
    looked = threading.Event()

    def write() -> None:
        for step in range(total):
            history.append(row(step, step + 1.0, step + 1.0))
            if step == total // 2:
                looked.wait(PATIENCE)

    writer = threading.Thread(target=write)
    writer.start()
    seen = 0
    while seen < total:
        seen = len(history)
        losses, norms = history.column("loss", seen - 50, seen), history.layer_metric("grad_norm", 0, seen)
        assert (losses == np.arange(max(seen - 50, 0), seen) + 1.0).all()
        assert len(norms) == seen and (norms == np.arange(seen)[:, None] + 1.0).all()
        assert not seen or history.row(seen - 1)["loss"] == seen
        if 0 < seen < total:
            looked.set()
    join(writer)
    assert looked.is_set(), "the reader never looked while the writer wrote"


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


# ---- parts of a history that go on by themselves, and a history as it grew

SHORT = 16  # rows of a block


@pytest.fixture
def short_blocks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module in (row_blocks, histories):
        monkeypatch.setattr(module, "BLOCK", SHORT)
    monkeypatch.setattr(files, "user_cache", lambda: tmp_path / "cache")


def grow(history: History, count: int, salt: int = 0) -> History:
    """Rows that tell where they are from, with notes of every kind now and then, and some that are not finite."""
    for step in range(len(history), len(history) + count):
        random = np.random.default_rng([salt, step])
        loss = (math.nan, math.inf, 1.0)[step % 3] if step % 11 < 2 else random.random()
        calls = (("zero_grad", "step") if step % 7 < 4 else ("step",), 1 + step // 20, False, "none", step % 5 == 0)
        history.append(
            Row(
                step,
                loss,
                *random.random(6).tolist()[:4],
                float(2 ** (step % 9)),
                step % 5 == 0,
                int(step % 13 == 0),
                *random.random(4).tolist(),
                layers=random.standard_normal((len(LAYER_METRICS), len(LAYERS))).astype(np.float32),
                loop=Loop(*calls),
                settings=Settings(("none", "norm")[step // 9 % 2], float(salt), "fp32"),
                accumulated=AccumulationError(step, random.random(), 1e-3) if step % 6 == 1 else None,
                activations=Activations(step, (Activation("first.weight", *random.random(4).tolist()),))
                if step % 8 == 3
                else None,
            )
        )
    return history


def content(history: History, stop: int | None = None) -> list[object]:
    """Every bit of the rows before `stop`, and what is noted of them."""
    stop = len(history) if stop is None else stop
    bits = [history.column(name, 0, stop).tobytes() for name in COLUMNS] + [
        history.layer_metric(name, 0, stop).tobytes() for name in LAYER_METRICS
    ]
    notes = [
        [note for note in noted if note[0] < stop]
        for noted in (history.loops, history.settings, history.accumulated, history.activations)
    ]
    return [stop, history.layers, *bits, *notes]


def spilled(history: History) -> int:
    return sum(isinstance(block, SpilledArray) for block in history._layers)


@pytest.mark.usefixtures("short_blocks")
@pytest.mark.parametrize(
    "step", [0, 1, 2, SHORT - 1, SHORT, SHORT + 1, 2 * SHORT, 3 * SHORT - 1, 3 * SHORT, 3 * SHORT + 1, 4 * SHORT + 5]
)
def test_a_part_is_what_there_was_before_a_step_and_goes_on_by_itself(step: int) -> None:
    whole, again = grow(History(LAYERS), 4 * SHORT + 5), grow(History(LAYERS), 4 * SHORT + 5)
    assert spilled(whole) == 3
    part = whole.until(step)
    assert content(part) == content(whole, step)
    grow(part, 5 * SHORT, salt=1)  # other rows than those of the whole
    grow(whole, 5 * SHORT, salt=2)
    assert content(whole) == content(grow(again, 5 * SHORT, salt=2))
    straight = grow(grow(History(LAYERS), step), 5 * SHORT, salt=1)
    assert content(part) == content(straight)
    assert (part.due, part.broken) == (straight.due, straight.broken)
    assert spilled(part) >= 3 and spilled(whole) >= 7


@pytest.mark.usefixtures("short_blocks")
def test_a_part_of_a_part_outlives_both() -> None:
    whole = grow(History(LAYERS), 6 * SHORT + 3)
    part = grow(whole.until(5 * SHORT + 2), 3 * SHORT, salt=1)
    last = part.until(7 * SHORT + 1)
    del whole, part
    gc.collect()
    grow(last, 3 * SHORT, salt=2)
    straight = grow(grow(grow(History(LAYERS), 5 * SHORT + 2), 2 * SHORT - 1, salt=1), 3 * SHORT, salt=2)
    assert content(last) == content(straight)
    assert content(last.until(3 * SHORT)) == content(straight, 3 * SHORT), "whose blocks are all on disk"


@pytest.mark.usefixtures("short_blocks")
def test_full_blocks_are_shared_and_the_last_one_is_not() -> None:
    whole = grow(History(LAYERS), 3 * SHORT + 5)
    part = whole.until(3 * SHORT + 2)
    assert [one is other for one, other in zip(part._rows, whole._rows, strict=True)] == [True, True, True, False]
    assert [one is other for one, other in zip(part._layers, whole._layers, strict=True)] == [True, True, True, False]
    before = content(whole)
    part._rows[-1][:] = 0
    part._filling[:] = 0
    assert content(whole) == before
    exact = whole.until(2 * SHORT)
    assert len(exact._rows) == 2 and len(grow(exact, 1)._rows) == 3


def test_a_part_of_a_history_that_grows_meanwhile() -> None:
    whole, total = History(LAYERS), 2 * BLOCK + 100
    writer = threading.Thread(target=lambda: [whole.append(row(step, step + 1.0, step + 1.0)) for step in range(total)])
    writer.start()
    seen = 0
    while seen < total:
        seen = len(whole)
        part = whole.until(max(seen - 3, 0))
        assert len(part) == max(seen - 3, 0)
        assert (part.column("loss") == np.arange(len(part)) + 1.0).all()
        assert (part.layer_metric("grad_norm") == np.arange(len(part))[:, None] + 1.0).all()
    join(writer)


@pytest.mark.usefixtures("short_blocks")
@pytest.mark.parametrize("start", [0, 1, 9, 10, 11, 12, 13, 3 * SHORT, 70])
def test_a_history_as_it_grew_is_what_a_run_had_at_each_row(start: int) -> None:
    """Rows, notes, and when rules look."""
    whole, live, seen = grow(History(LAYERS), 5 * SHORT), grow(History(LAYERS), start), start
    for grown in whole.as_it_grew(start, 77):
        grow(live, 1)
        seen += 1
        assert len(grown) == seen and content(grown) == content(live)
        assert (grown.due, grown.broken) == (live.due, live.broken)
        assert grown.value("loss", seen - 1) == live.value("loss", seen - 1) or math.isnan(live.value("loss", seen - 1))
    assert seen == 77 and any((step + 1) % LOOK_EVERY for step in range(77) if whole.went_nonfinite_at(step))


def test_a_history_as_it_grew_ends_where_it_ended() -> None:
    history = filled(5)
    assert [len(grown) for grown in history.as_it_grew(3, 100)] == [4, 5]
    assert (
        [len(grown) for grown in history.as_it_grew(5, 5)] == [] == [len(grown) for grown in History().as_it_grew(0, 3)]
    )


def test_a_part_of_a_run_that_broke_knows_whether_it_had() -> None:
    history = filled(4)
    history.append(row(4, math.nan))
    history.append(row(5, 1.0))
    assert [history.until(step).broken for step in range(7)] == [False] * 5 + [True, False]

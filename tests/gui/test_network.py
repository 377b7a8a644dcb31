"""The card below the curves: the network at one step, as measured, and what its keys and its light do."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from PySide6.QtCore import QPointF, Qt
from PySide6.QtWidgets import QTabBar
from pytestqt.qtbot import QtBot
from waiting import LONG

from gradstudio.core.history import LAYER_METRICS, History
from gradstudio.core.provenance import Provenance
from gradstudio.core.row import Layer
from gradstudio.gui.assignment.exam_plots import ExamPlots
from gradstudio.gui.drawing.network_blocks import Birth, DecadeScale, along_time, birth_of, blocks_of, flows
from gradstudio.gui.drawing.row_groups import Group
from gradstudio.gui.plots.layers import LayersPlot
from gradstudio.gui.window import Window

pytestmark = pytest.mark.shares_window


def history_of(*rows: dict[str, list[float]], layers: int = 3) -> History:
    history = History(tuple(Layer(f"hidden.{place}.weight", "weight", 10 * (place + 1)) for place in range(layers)))
    values = np.ones((len(LAYER_METRICS), len(rows), layers), np.float32)
    for step, row in enumerate(rows):
        for place, metric in enumerate(LAYER_METRICS):
            values[place, step] = row.get(metric, [0.0] * layers)
    history.extend(np.zeros((len(rows), 1)), values)
    return history


def test_zero_nan_and_unknown_are_told_apart() -> None:
    nan = math.nan
    history = history_of(
        {
            "grad_norm": [3.0, 0.0, nan],
            "zero_share": [0.5, 1.0, nan],
            "nonfinite_share": [0.0, 0.0, nan],
        },
        {"grad_norm": [4.0, nan, math.inf], "nonfinite_share": [0.0, 0.25, 0.1]},
    )
    blocks = blocks_of(tuple(layer.name for layer in history.layers), 9)
    assert [block.name for block in blocks] == ["hidden.0", "hidden.1", "hidden.2"]
    assert [flow.state for flow in flows(history, blocks, 0)] == ["measured", "zero", "unknown"]
    assert [flow.state for flow in flows(history, blocks, 1)] == ["measured", "nonfinite", "nonfinite"]
    [together] = flows(history, blocks_of(tuple(layer.name for layer in history.layers[:1]), 9), 0)
    assert (together.norm, together.zeros) == (3.0, 0.5)


def test_many_modules_are_put_together_evenly() -> None:
    names = tuple(f"hidden.{place}.{part}" for place in range(40) for part in ("weight", "bias"))
    blocks = blocks_of((*names, "head.weight"), 9)
    assert len(blocks) == 9 and blocks[0].name == "hidden.0–4" and blocks[-1].stop == 81
    assert [block.first for block in blocks[1:]] == [block.stop for block in blocks[:-1]]
    stack = ("rnn.weight_ih_l0", "rnn.weight_hh_l0", "rnn.weight_ih_l1", "rnn.weight_hh_l1", "head.weight")
    assert [block.name for block in blocks_of(stack, 9)] == ["rnn.l0", "rnn.l1", "head"]
    assert [block.name for block in blocks_of(("rnn.weight_ih_l0", "head.weight"), 9)] == ["rnn", "head"]


def test_the_scale_holds_nearly_all_norms() -> None:
    scale = DecadeScale()
    assert scale.levels == (-4, 0)
    history = history_of(*[{"grad_norm": [0.02, 0.3, 7.0]}] * 400, {"grad_norm": [1e20, math.inf, math.nan]})
    names = tuple(layer.name for layer in history.layers)
    scale.take(history, blocks_of(names, 9), len(history))
    assert scale.levels == (-2, 3)  # two decades over the usual, and not 1e20


def test_the_scale_is_that_of_blocks_and_not_of_a_tiny_bias_in_one() -> None:
    history = history_of(*[{"grad_norm": [0.3, 1e-9]}, {"grad_norm": [0.2, math.nan]}] * 30, layers=2)
    scale = DecadeScale()
    scale.take(history, [Group("hidden", 0, 2)], len(history))
    assert scale.levels == (-4, 0)


@pytest.mark.parametrize(
    ("phase", "module", "layers", "found"),
    [
        ("forward", "hidden.1", (), Birth(1, False)),
        ("backward", "", ("hidden.0.weight", "hidden.1.weight"), Birth(1, True)),
        ("loss", "", (), Birth(3, False)),
        ("data", "", (), Birth(-1, False)),
        ("update", "", (), None),
    ],
)
def test_a_birth_is_in_the_block_of_its_module(
    phase: str, module: str, layers: tuple[str, ...], found: Birth | None
) -> None:
    names = tuple(f"hidden.{place}.weight" for place in range(3))
    born = Provenance(5, phase, module, "aten.log.default", "", 0, 1, None, layers, ())  # pyright: ignore[reportArgumentType]
    blocks = blocks_of(names, 9)
    assert birth_of(born, 5, blocks, names) == birth_of(born, 6, blocks, names) == found
    assert birth_of(born, 4, blocks, names) is None


def test_an_exam_does_not_frame_where_a_nan_was_born(qtbot: QtBot, stepped: Window) -> None:
    run, exam = stepped.simulator.run, ExamPlots()
    qtbot.addWidget(exam)
    layers = (run.history.layers[0].name,)
    born = Provenance(1, "forward", "", "aten.log.default", "", 0, 1, None, layers, ())
    run = replace(run, provenance=born)
    shown = exam.plots[-1]
    assert isinstance(shown, LayersPlot)
    for plot, framed in ((stepped.plots.layers, True), (shown, False)):
        plot.refresh(run, 1.0)
        assert plot.is_framed == framed


@pytest.fixture
def stepped(qtbot: QtBot, make_window: Callable[..., Window]) -> Window:
    window = make_window(model__depth=3)
    for steps in (1, 2):
        window.top.step.click()
        qtbot.waitUntil(lambda steps=steps: len(window.simulator.run.history) == steps, timeout=LONG)
        qtbot.waitUntil(lambda: window.simulator.run.status == "paused", timeout=LONG)
        window.refresh(whole=True)
    return window


def test_a_step_sends_a_light_and_keys_read_blocks(qtbot: QtBot, stepped: Window) -> None:
    page, run = stepped.plots.layer_card.network, stepped.simulator.run
    picture = page.picture
    assert picture.isVisible() and picture.state is not None and picture.state.names[-1] == "head"
    assert picture.is_animated
    qtbot.waitUntil(lambda: not picture.is_animated, timeout=LONG)
    layers = [place for place, layer in enumerate(run.history.layers) if layer.name.startswith("head.")]
    norm = float(np.linalg.norm(run.history.layer_metric("grad_norm", 1, 2)[0][layers].astype(float)))
    assert picture.state.flows[-1].norm == pytest.approx(norm)
    qtbot.keyClick(picture, Qt.Key.Key_Left)
    assert "head" in page.legend.text() and "step 1" in page.legend.text()
    assert "head: gradient norm" in picture.accessibleDescription()
    qtbot.keyClick(picture, Qt.Key.Key_Return)
    assert stepped.plots.layer_page.isVisible() and stepped.plots.layer_page.layer == "head.weight"
    assert not stepped.plots.layer_card.isVisible()
    stepped.plots.show_all()
    assert stepped.plots.layer_card.isVisible() and picture.isVisible()


def test_the_tabs_turn_by_keys_and_are_remembered(qtbot: QtBot, stepped: Window, qapp: object) -> None:
    card = stepped.plots.layer_card
    assert isinstance(card.tabs, QTabBar) and card.page == "network" and stepped.plots.layers not in stepped.plots.plots
    qtbot.keyClick(card.tabs, Qt.Key.Key_Right)
    stepped.refresh(whole=True)
    assert card.page == "layers" and stepped.plots.layers.isVisible() and stepped.plots.layers in stepped.plots.plots
    assert stepped.plots.layers.image.image.size
    again = type(card)(type(card.layers)(stepped.plots.steps, stepped.plots.step_cursor))
    qtbot.addWidget(again)
    assert again.page == "layers"


def test_a_picture_out_of_sight_is_still(qtbot: QtBot, stepped: Window) -> None:
    card = stepped.plots.layer_card
    qtbot.waitUntil(lambda: not card.network.picture.is_animated, timeout=LONG)
    card.show_page("layers")
    card.network.picture.send_light()
    assert not card.network.picture.is_animated
    assert card.network.picture._block_at(QPointF(0, 0)) is None


def test_the_network_is_as_it_was_at_the_step_that_is_looked_at(stepped: Window) -> None:
    plots, run = stepped.plots, stepped.simulator.run
    plots.looked.look_at(0)
    stepped.refresh(whole=True)
    shown = plots.layer_card.network.picture.state
    assert shown is not None and "step 0" in plots.layer_card.network.legend.text()
    weight, bias = run.history.layer_metric("grad_norm", 0, 1)[0][:2].astype(float)
    assert shown.flows[0].norm == pytest.approx(math.hypot(weight, bias))


def test_time_steps_are_chosen_evenly_and_hold_the_birth() -> None:
    norms = (0.0, *(10.0 ** (place - 20) for place in range(1, 20)), math.nan)
    places, made, levels = along_time(norms, 5)
    assert places == [0, 5, 10, 15, 20] and levels == (-15, 1)
    assert [flow.state for flow in made] == ["zero", "measured", "measured", "measured", "nonfinite"]
    assert along_time(norms, 5, born=4)[0] == [0, 4, 10, 15, 20]


def test_a_recurrent_network_that_stands_is_unrolled(qtbot: QtBot, make_window: Callable[..., Window]) -> None:
    window = make_window(model__kind="rnn", run__steps=3)
    page = window.plots.layer_card.network
    window.controls.run_or_pause()
    qtbot.waitUntil(lambda: window.simulator.run.over, timeout=LONG)

    def unrolled() -> bool:
        window.refresh(whole=True)
        return page.picture.state is not None and page.picture.state.head == "start"

    qtbot.waitUntil(unrolled, timeout=LONG)
    assert page.picture.state is not None and page.picture.state.names[0] == "t 1" and page.unroll.isVisible()
    qtbot.keyClick(page.picture, Qt.Key.Key_Right)
    assert "time step 1 of" in page.legend.text()
    qtbot.mouseClick(page.unroll, Qt.MouseButton.LeftButton)
    window.refresh(whole=True)
    assert page.picture.state.head == "input" and page.picture.state.names == ("rnn", "head")

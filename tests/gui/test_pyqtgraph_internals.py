"""Names of pyqtgraph that may go: without any of them the plots are drawn through its public API, the same."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PySide6.QtGui import QImage
from pytestqt.qtbot import QtBot

from gradstudio.core.experiment import Experiment
from gradstudio.core.history import LAYER_METRICS
from gradstudio.core.presets import Preset
from gradstudio.core.row import Layer, Row
from gradstudio.gui.drawing import pyqtgraph_internals as internals
from gradstudio.gui.plots.plot_stack import PlotStack
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_writer import RunWriter
from gradstudio.session.simulator import Simulator

GUI = Path(internals.__file__).parents[1]
LAYERS = (Layer("hidden.weight", "weight", 4), Layer("head.weight", "weight", 4))
PUBLIC = {"pyqtgraph", "pyqtgraph.GraphicsScene.mouseEvents"}  # modules that its documentation names


@pytest.fixture(autouse=True)
def untried() -> Iterator[None]:
    """Every shortcut is tried anew, and once more afterwards."""
    tried = (internals.axes_are_pictures, internals.polygons_are_arrays, internals.polygon)
    for each in tried:
        each.cache_clear()
    internals.notices.clear()
    yield
    for each in tried:
        each.cache_clear()
    internals.notices.clear()


def pictures(qtbot: QtBot) -> list[QImage]:
    """All plots of a run with a NaN, a skipped step and a changed knob, as they are on the screen."""
    run = Run(Preset(id="p", title="P", experiment=Experiment()), Experiment())
    writer = RunWriter(run)
    writer.begin(LAYERS, {"device": "cpu"})
    for step in range(60):
        loss = np.nan if step == 40 else 3.0 / (1 + step)
        if step == 20:
            writer.change("optimizer.lr", 0.5)
        writer.record(Row(
            step=step, loss=loss, grad_norm=2 * loss, clipped_norm=1.0, clip_coef=0.5, lr=0.1, scale=2.0**16,
            skipped=step == 40, nonfinite=0, update_ratio=1e-3, weight_norm=1.0, accuracy=0.5, step_seconds=0.01,
            layers=np.full((len(LAYER_METRICS), len(LAYERS)), 10.0 ** -(step % 4)),
        ))  # fmt: skip
    stack, simulator = PlotStack(), Simulator(run.preset)
    list(stack.furnishing())
    qtbot.addWidget(stack)
    stack.resize(700, 700)
    stack.show()
    simulator.run = run
    for _ in range(2):  # the second time after the layout has settled
        stack.refresh(simulator)
        stack.grab()
    stack.refresh(simulator)
    return [plot.widget.grab().toImage() for plot in stack.plots]


@pytest.fixture(scope="module")
def with_all_names() -> list[QImage]:
    """The plots as they are with every private name, which the first test draws and the others only compare with."""
    return []


@pytest.mark.parametrize("name", internals.NAMES)
def test_without_a_private_name_every_plot_is_the_same(
    qtbot: QtBot,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    with_all_names: list[QImage],
    name: str,
) -> None:
    if not with_all_names:
        with_all_names += pictures(qtbot)
        assert internals.notices == []
    untaken = internals.private

    def private(owner: object, asked: str) -> object:
        return untaken(owner, f"{asked}_that_is_gone" if asked == name else asked)

    monkeypatch.setattr(internals, "private", private)
    for tried in (internals.axes_are_pictures, internals.polygons_are_arrays, internals.polygon):
        tried.cache_clear()
    for drawn, was in zip(pictures(qtbot), with_all_names, strict=True):
        assert drawn.size() == was.size() and difference(drawn, was) < 0.01
    assert len(internals.notices) == 1 and f"{name}_that_is_gone" in internals.notices[0]
    assert [record.message for record in caplog.records] == internals.notices  # told once, not for every plot


def difference(one: QImage, other: QImage) -> float:
    """Share of the pixels that differ to the eye."""
    return float((np.abs(pixels(one) - pixels(other)).max(axis=1) > 64).mean())


def pixels(image: QImage) -> np.ndarray:
    """Blue, green, red and nothing of every pixel, (pixels, 4)."""
    held = image.convertToFormat(QImage.Format.Format_RGB32)  # `bits` does not keep the memory that it shows
    return np.frombuffer(held.bits(), np.uint8).astype(int).reshape(-1, 4)


def test_all_shortcuts_work_with_the_pyqtgraph_that_is_installed(qapp: object) -> None:
    assert internals.try_all() == []


def test_no_other_file_of_the_window_uses_a_private_name() -> None:
    found = []
    for path in GUI.rglob("*.py"):
        if path.name == "pyqtgraph_internals.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pyqtgraph"):
                found += [node.module] if node.module not in PUBLIC else []
            if isinstance(node, ast.Attribute) and node.attr in set(internals.NAMES) - {"picture"}:
                found.append(f"{path.name}:{node.lineno}: {node.attr}")
    assert found == []

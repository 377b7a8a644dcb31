"""Values at the ends of their ranges, steps beyond 32 bits and other hostile input: nothing in the window throws."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PySide6.QtCore import QEvent, QPoint, QPointF, Qt, QtMsgType, qInstallMessageHandler
from PySide6.QtGui import QMouseEvent, QWheelEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot
from waiting import LONG

from gradstudio import gui
from gradstudio.core.experiment import KNOBS, Experiment
from gradstudio.core.knobs import Knob, KnobError, Value
from gradstudio.core.presets import Preset
from gradstudio.gui.drawing import axes
from gradstudio.gui.export import plot_menu
from gradstudio.gui.knobs.editors import LineEditor, NumberEditor
from gradstudio.gui.plots.step_plot import StepPlot
from gradstudio.gui.widgets.scroll_safe import SLIDER_STEPS
from gradstudio.gui.window import Window
from gradstudio.session.files import curve_import
from gradstudio.session.files.curve_import import Curve, CurveError

pytestmark = pytest.mark.shares_window

LEFT = Qt.MouseButton.LeftButton
NO_BUTTON = Qt.MouseButton.NoButton
FLOATS: tuple[Value, ...] = (1e30, 2.0**31, 2.0**63, 0.0, 1e-45, 5e-324, -1e30, sys.float_info.max)
INTS: tuple[Value, ...] = (2**31 - 1, 2**31, 2**63, 10**30, 0, -1)
TYPED = ("inf", "nan", "-inf", "1e400", "2147483648", "5e-324", "1" * 5000, "١٢", "", "\x00", "<b>", "x" * 100_000)


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    """What Qt warns of meanwhile; pytest-qt itself fails a test in whose slots an exception was raised."""
    heard: list[str] = []

    def on_message(kind: QtMsgType, _: object, text: str) -> None:
        if kind != QtMsgType.QtDebugMsg and not text.startswith("This plugin does not support"):
            heard.append(text)

    before = qInstallMessageHandler(on_message)
    yield heard
    qInstallMessageHandler(before)
    assert not heard


def ends(knob: Knob) -> list[Value]:
    """Return values at and beyond the ends of what a knob allows."""
    if knob.kind not in ("int", "float"):
        return list(knob.choices) or ([True, False] if knob.kind == "bool" else ["x" * 100_000])
    bounds = [bound for bound in (knob.minimum, knob.maximum) if abs(bound) < float("inf")]
    return [*(INTS if knob.kind == "int" else FLOATS), *(int(b) if knob.kind == "int" else float(b) for b in bounds)]


def preset(name: str, value: Value) -> Preset | None:
    """Return a preset with one value of one knob; None where that is not allowed."""
    small: dict[str, Value] = {"model.width": 8, "model.depth": 1, "run.device": "cpu"}
    try:
        return Preset(id="p", title="p", summary="", experiment=Experiment().with_values({**small, name: value}))
    except KnobError:
        return None


def test_every_editor_shows_every_value(window: Window, warnings: list[str]) -> None:
    """By a preset, by an undo, by typing and by the slider."""
    for name, knob in KNOBS.items():
        editor = window.knobs.rows[name].editor
        for value in ends(knob):
            loaded = preset(name, value)
            if loaded is not None:
                editor.set_value(value)
            window.controls.set_knob(name, value)
            window.controls.undo()
        if isinstance(editor, LineEditor):
            for text in TYPED:
                editor._line.setText(text)
                editor._line.done.emit()
        if isinstance(editor, NumberEditor) and editor._range:
            for place in (0, 1, SLIDER_STEPS - 1, SLIDER_STEPS):
                editor._slider.setValue(place)
        window.knobs.rows[name].show_state(window.simulator, waiting=False)


def test_a_preset_with_more_noise_than_the_slider_shows(window: Window, warnings: list[str]) -> None:
    loaded = preset("gradients.noise_std", 1e6)
    assert loaded is not None
    window.controls.load(loaded)
    window.refresh(whole=True)
    editor = window.knobs.rows["gradients.noise_std"].editor
    assert isinstance(editor, NumberEditor)
    assert editor._slider.value() == SLIDER_STEPS and editor.value == 1e6


def test_the_line_of_max_norm_at_the_ends(
    qtbot: QtBot, make_window: Callable[..., Window], warnings: list[str]
) -> None:
    window = make_window(clipping__kind="norm", run__steps=4)
    window.controls.run_or_pause()
    qtbot.waitUntil(lambda: window.simulator.run.over, timeout=LONG)
    for max_norm in (5e-324, 1e-45, KNOBS["clipping.max_norm"].maximum, sys.float_info.max):
        window.controls.set_knob("clipping.max_norm", max_norm)
        window.refresh(whole=True)
        touch(window, window.plots.gradient_norm)


# ---- plots


def mouse(plot: StepPlot, kind: QEvent.Type, x: float, y: float, button: Qt.MouseButton, held: Qt.MouseButton) -> None:
    view = plot.widget.viewport()
    place = QPointF(x * view.width(), y * view.height())
    globally = QPointF(view.mapToGlobal(place.toPoint()))
    QApplication.sendEvent(view, QMouseEvent(kind, place, globally, button, held, Qt.KeyboardModifier.NoModifier))


def touch(window: Window, plot: StepPlot) -> None:
    """Point at a plot, drag it far out, click it, and press its keys."""
    kinds = QEvent.Type
    for x, y in ((0.0, 0.5), (0.3, 0.1), (0.99, 0.9)):
        mouse(plot, kinds.MouseMove, x, y, NO_BUTTON, NO_BUTTON)
    mouse(plot, kinds.MouseButtonPress, 0.3, 0.5, LEFT, LEFT)
    for x in (0.5, 0.9, -3.0, 0.8):
        mouse(plot, kinds.MouseMove, x, 0.5, NO_BUTTON, LEFT)
    mouse(plot, kinds.MouseButtonRelease, 0.8, 0.5, LEFT, NO_BUTTON)
    for key in (Qt.Key.Key_Left, Qt.Key.Key_Plus, Qt.Key.Key_End, Qt.Key.Key_Minus, Qt.Key.Key_Home):
        QTest.keyClick(plot.widget, key)
    middle = QPoint(plot.widget.viewport().width() // 2, plot.widget.viewport().height() // 2)
    QTest.mouseClick(plot.widget.viewport(), LEFT, pos=middle)
    QTest.mouseDClick(plot.widget.viewport(), LEFT, pos=middle)
    window.refresh(whole=True)


def test_a_wheel_that_never_ends(qtbot: QtBot, window: Window, warnings: list[str]) -> None:
    """Its notches come together where the window was busy."""
    loss, steps = window.plots.loss, window.plots.steps
    for notches in (10**5, -(10**5)):
        before, view = (steps.first, steps.last), loss.widget.viewport()
        place, turned = QPointF(view.rect().center()), QPoint(0, 120 * notches)
        wheel = QWheelEvent(place, view.mapToGlobal(place), QPoint(), turned, NO_BUTTON,
                            Qt.KeyboardModifier.NoModifier, Qt.ScrollPhase.NoScrollPhase, False)  # fmt: skip
        QApplication.sendEvent(view, wheel)
        qtbot.waitUntil(lambda before=before: (steps.first, steps.last) != before, timeout=LONG)
        assert math.isfinite(steps.first) and steps.first < steps.last < math.inf


FAR = {
    "beyond 32 bits": np.linspace(0, 2.0**40, 9),
    "up to 2 to the 53": np.linspace(-(2.0**53), 2.0**53, 9),
    "one step": np.array([2.0**53]),
}
HIGH = {
    "1e300": np.geomspace(1, 1e300, 9),
    "both signs": np.linspace(-1e300, 1e300, 9),
    "the largest float": np.tile([sys.float_info.max, -sys.float_info.max], 5)[:9],
    "denormals": np.full(9, 5e-324),
    "no number": np.tile([np.nan, np.inf, -np.inf], 3),
}


@pytest.mark.parametrize("task", ["digits", "pole"])
def test_imported_curves_of_any_size(
    qtbot: QtBot, make_window: Callable[..., Window], task: str, warnings: list[str]
) -> None:
    """On a log axis, and on a linear one as the loss of the pole may be negative."""
    kinds = {"model__kind": "policy", "problem__task": "pole"} if task == "pole" else {}
    window = make_window(run__steps=6, **kinds)
    window.controls.run_or_pause()
    qtbot.waitUntil(lambda: window.simulator.run.over, timeout=LONG)
    window.refresh(whole=True)
    assert window.plots.loss._axis.linear == (task == "pole")
    pairs = [(FAR["beyond 32 bits"], values) for values in HIGH.values()]
    for steps, values in [*pairs, *((steps, HIGH["both signs"]) for steps in FAR.values())]:
        for plot in (window.plots.loss, window.plots.gradient_norm):
            curve = Curve("c", steps, values[: len(steps)])
            plot_menu._draw_over(window.context, window.plots.overlays, plot, Path("c.csv"), curve)
        window.refresh(whole=True)
        touch(window, window.plots.loss)
        touch(window, window.plots.timeline)
        QApplication.processEvents()
        window.plots.overlays.remove(*window.plots.overlays.slots)


def test_a_step_that_no_float_tells_apart_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "far.csv"
    path.write_text("step,loss\n1,2\n9007199254740992,3\n")
    assert curve_import.read(path)[0].steps[-1] == 2.0**53
    path.write_text("step,loss\n1,2\n1e300,3\n")
    with pytest.raises(CurveError, match="a step beyond 9,007,199,254,740,992"):
        curve_import.read(path)


EDGES = (0.0, 5e-324, 1e-300, 1.0, 1e15, 1e300, sys.float_info.max)


@pytest.mark.parametrize("kind", [axes.LogAxis, axes.Log2Axis, axes.LinearAxis, axes.StepAxis, axes.EitherAxis])
def test_every_axis_has_ticks_for_every_range(qapp: object, kind: type[axes.Axis]) -> None:
    logarithmic = issubclass(kind, axes.LogAxis | axes.Log2Axis)
    ends = (-400.0, -308.3, -0.1, 0.0, 308.25, 308.3, 1100.0) if logarithmic else (*(-e for e in EDGES), *EDGES)
    axis = kind("left")
    for low in ends:
        for high in (*ends, math.nextafter(low, math.inf)):
            if low < high < math.inf:
                for spacing, ticks in axis.tickValues(low, high, 95):
                    assert all(np.isfinite(ticks)) and len(ticks) <= 60
                    axis.tickStrings(list(ticks), 1.0, spacing)


def test_a_run_that_begins_under_the_pointer(
    qtbot: QtBot, make_window: Callable[..., Window], warnings: list[str]
) -> None:
    """The axis learns the names of the layers only when the run's first rows are drawn."""
    window = make_window(run__steps=4)
    window.plots.layer_card.show_page("layers")
    window.controls.run_or_pause()
    qtbot.waitUntil(lambda: window.simulator.run.over, timeout=LONG)
    plot = window.plots.layers
    plot._axis.names, plot._row = (), 0
    assert plot.reading(window.simulator.run, 0).startswith(window.simulator.run.history.layers[0].name)


def test_every_painter_ends_with_its_block() -> None:
    """One that an exception left open, on a picture that is freed before it, crashes Qt."""
    for path in sorted(Path(gui.__path__[0]).rglob("*.py")):
        for line in path.read_text().splitlines():
            assert " QPainter(" not in line or line.lstrip().startswith("with QPainter("), f"{path}: {line}"

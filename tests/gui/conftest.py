"""A real window around a small experiment, on the offscreen platform."""

from __future__ import annotations

import faulthandler
import math
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from PySide6.QtCore import QSettings
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot
from torture import stage
from waiting import LONG, PATIENCE

from gradstudio.core.experiment import Experiment
from gradstudio.core.presets import LessonStep, Preset
from gradstudio.gui import app
from gradstudio.gui import window as windows
from gradstudio.gui.knobs.knob_group import CLOSED_AT_FIRST
from gradstudio.gui.plots.plot_stack import PlotStack
from gradstudio.gui.window import Window
from gradstudio.session.simulator import Simulator

SMALL = {"model.width": 8, "model.depth": 1, "problem.batch_size": 16, "run.steps": 40, "run.device": "cpu"}
LESSON = [LessonStep(text="Run", outcome="finished"), LessonStep(text="Clip", knobs=["clipping.kind=norm"])]


@pytest.fixture(scope="session")
def qapp() -> QApplication:
    """The application as the program makes it, in place of pytest-qt's plain one."""
    with pytest.MonkeyPatch.context() as patches:
        # pytest's own tells of a crash where it can be read; this one would tell the captured stderr
        patches.setattr(faulthandler, "enable", lambda: None)
        return app.application()


@pytest.fixture(autouse=True)
def nothing_is_remembered(qapp: QApplication) -> None:
    """Every test begins with the settings of a first start, whatever the one before has chosen. Only fixes are not
    tried by themselves, so that no test trains more than it asks for."""
    QSettings().clear()
    QSettings().setValue("fixes/two_futures", False)


def small(**values: Any) -> Preset:
    """A preset that trains in a moment, with more knobs set, such as model__width."""
    knobs = SMALL | {name.replace("__", "."): value for name, value in values.items()}
    experiment = Experiment().with_values(knobs)
    return Preset(id="small", title="Small", summary="A small one.", experiment=experiment, lesson=LESSON)


def open_window(**values: Any) -> Window:
    window = Window(small(**values))
    window.resize(1280, 720)
    window.show()
    window.furnish()
    window.heartbeat.start()
    window.simulator.set_speed(math.inf)  # a test waits for steps, and not for a person who watches them
    return window


@pytest.fixture
def make_window(
    qtbot: QtBot, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Window]]:
    for limit in ("CLOSING", "LAST"):  # a test that closes a window wants to know how that ends
        monkeypatch.setattr(windows, limit, PATIENCE)
    monkeypatch.setenv("GRADSTUDIO_LIBRARY", str(tmp_path_factory.mktemp("library") / "runs.sqlite3"))
    made: list[Window] = []

    def make(**values: Any) -> Window:
        window = open_window(**values)
        qtbot.addWidget(window)
        made.append(window)
        qtbot.waitUntil(window.isActiveWindow, timeout=LONG)  # keys and the focus are for an active window alone
        return window

    yield make
    for window in made:
        window.close()
        assert window.simulator.close(PATIENCE)


@pytest.fixture
def window(request: pytest.FixtureRequest) -> Window:
    """A window of its own, or the one of all tests of the file, where that is marked so."""
    mark = request.node.get_closest_marker("shares_window")
    if mark is not None and mark.args != (False,):
        return request.getfixturevalue("shared_window")
    return request.getfixturevalue("make_window")()


@pytest.fixture(scope="module")
def shared(qapp: QApplication, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Window]]:
    """The window of the tests of a file, which is made for the first that asks, and anew after one that closed it."""
    library, made = tmp_path_factory.mktemp("library") / "runs.sqlite3", list[Window]()
    with pytest.MonkeyPatch.context() as patches:

        def get() -> Window:
            patches.setenv("GRADSTUDIO_LIBRARY", str(library))
            if not made or not made[-1].isVisible():
                made.append(open_window())
            return made[-1]

        yield get
    for window in made:
        window.close()
        assert window.simulator.close(PATIENCE)
        window.deleteLater()


@pytest.fixture
def shared_window(qtbot: QtBot, shared: Callable[[], Window], monkeypatch: pytest.MonkeyPatch) -> Iterator[Window]:
    """A window that other tests of the file had before, in which a person has opened the preset again. For a test of what
    it shows; one that looks at the library, at settings, or at what is there at first takes `window`."""
    window = shared()
    monkeypatch.setenv("GRADSTUDIO_LIBRARY", os.environ["GRADSTUDIO_LIBRARY"])
    window.activateWindow()
    qtbot.waitUntil(window.isActiveWindow, timeout=LONG)
    yield window
    if window.isVisible():
        bring_back(window, qtbot)
    else:
        assert window.simulator.close(PATIENCE)


def bring_back(window: Window, qtbot: QtBot) -> None:
    """Open the preset again, and put everything where it was at first."""
    stage.close_dialogs(window)
    window.projector.leave()
    window.show_plots()
    window.resize(1280, 720)
    window.fixes.stop()
    window.map.stop()
    if window.runs.baseline.run is not None:
        window.runs.baseline.pin()  # which unpins it
    window.columns.reset()
    window.plots.show_all()
    for search in (window.knobs.search, window.side.runs.search):
        search.clear()
    for fold in (window.knobs.more, *(group.head for group in window.knobs.groups)):
        if fold.open != (fold.title not in CLOSED_AT_FIRST):
            fold.button.click()
    window.plots.overlays.remove(*window.plots.overlays.slots)
    window.controls.load(small())
    window.simulator.set_speed(math.inf)
    window.plots.step_cursor.move(None)
    window.looked.leave()
    qtbot.waitUntil(lambda: not window.simulator.busy and not window.jobs.busy, timeout=LONG)
    window.message.hide()
    window.refresh(whole=True)
    window.plots.setFocus()


@pytest.fixture
def shown(qapp: object, qtbot: QtBot) -> tuple[PlotStack, Simulator]:
    stack = PlotStack()
    list(stack.furnishing())
    qtbot.addWidget(stack)
    stack.layer_card.show_page("layers")
    stack.resize(900, 700)
    stack.show()
    return stack, Simulator(Preset(id="p", title="P", experiment=Experiment()))


@pytest.fixture
def trained(qtbot: QtBot, window: Window) -> Window:
    """The window after its run."""
    window.controls.run_or_pause()
    qtbot.waitUntil(lambda: window.simulator.run.over, timeout=LONG)
    window.refresh(whole=True)
    return window

"""A real window around a small experiment, on the offscreen platform."""

from __future__ import annotations

import faulthandler
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from PySide6.QtCore import QSettings
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot
from waiting import LONG, PATIENCE

from gradstudio.core.experiment import Experiment
from gradstudio.core.presets import LessonStep, Preset
from gradstudio.gui import app
from gradstudio.gui import window as windows
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


@pytest.fixture
def make_window(
    qtbot: QtBot, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Window]]:
    for limit in ("CLOSING", "LAST"):  # a test that closes a window wants to know how that ends
        monkeypatch.setattr(windows, limit, PATIENCE)
    monkeypatch.setenv("GRADSTUDIO_LIBRARY", str(tmp_path_factory.mktemp("library") / "runs.sqlite3"))
    made: list[Window] = []

    def make(**values: Any) -> Window:
        knobs = SMALL | {name.replace("__", "."): value for name, value in values.items()}
        window = Window(
            Preset(
                id="small",
                title="Small",
                summary="A small one.",
                experiment=Experiment().with_values(knobs),
                lesson=LESSON,
            )
        )
        qtbot.addWidget(window)
        window.resize(1280, 720)
        window.show()
        window.furnish()
        window.heartbeat.start()
        window.simulator.set_speed(math.inf)  # a test waits for steps, and not for a person who watches them
        made.append(window)
        qtbot.waitUntil(window.isActiveWindow, timeout=LONG)  # keys and the focus are for an active window alone
        return window

    yield make
    for window in made:
        window.close()
        assert window.simulator.close(PATIENCE)


@pytest.fixture
def window(make_window: Callable[..., Window]) -> Window:
    return make_window()


@pytest.fixture
def shown(qapp: object, qtbot: QtBot) -> tuple[PlotStack, Simulator]:
    stack = PlotStack()
    list(stack.furnishing())
    qtbot.addWidget(stack)
    stack.layer_card.show_page("layers")
    stack.resize(900, 700)
    stack.show()
    return stack, Simulator(Preset(id="p", title="P", experiment=Experiment()))

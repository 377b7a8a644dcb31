"""The page of memory: what it shows is what the command says, a cure is one change, and nothing works out of sight."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot
from waiting import LONG, PATIENCE, settle

from gradstudio.core.experiment import Experiment
from gradstudio.core.footprint import MB, PARTS, Cure, Footprint
from gradstudio.core.knobs import format_value
from gradstudio.gui.memory import memory_controller
from gradstudio.gui.memory.memory_panel import MemoryPanel
from gradstudio.gui.theme import theme
from gradstudio.gui.window import Window
from gradstudio.session.footprint import process as processes
from gradstudio.session.footprint import texts
from gradstudio.session.footprint.budget import ASKED
from gradstudio.session.footprint.process import FootprintProcess

OVER = {"problem__batch_size": 512, "model__depth": 6, "model__width": 128, "run__memory_budget": 2}
# In place of the process that works footprints out: it knows none, and ends with its stdin.
KNOWS_NOTHING = """import json, sys
print("ready", flush=True)
for line in sys.stdin:
    print(json.dumps({"number": json.loads(line)["number"], "problem": "nobody knows"}), flush=True)"""


@pytest.fixture
def kept() -> FootprintProcess:
    """The process that the program has. It is started once for all tests, as that takes seconds, and ends with them."""
    return ASKED._process


@pytest.fixture(scope="module")
def answered() -> list[tuple[Experiment, list[object]]]:
    """What was asked, and all that was answered: a question that a test asks again is not worked out again."""
    return []


@pytest.fixture
def may_answer() -> threading.Event:
    """No question is answered while this is not set."""
    event = threading.Event()
    event.set()
    return event


@pytest.fixture(autouse=True)
def asked(
    kept: FootprintProcess, answered: list[tuple[Experiment, list[object]]], may_answer: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
) -> list[Experiment]:  # fmt: skip
    """What the process was asked by the page."""
    heard: list[Experiment] = []

    class Heard:
        def ask(self, experiment: Experiment, stopped: Callable[[], bool]) -> Iterator[object]:
            heard.append(experiment)
            assert may_answer.wait(PATIENCE)
            known = next((answers for question, answers in answered if question == experiment), None)
            if known is not None:
                yield from known
                return
            answers = []
            for answer in kept.ask(experiment, stopped):
                answers.append(answer)
                yield answer
            if not stopped():
                answered.append((experiment, answers))

        def close(self) -> None:
            pass

    monkeypatch.setattr(memory_controller, "FootprintProcess", Heard)
    return heard


def opened(qtbot: QtBot, window: Window) -> Window:
    window.activateWindow()
    qtbot.waitUntil(window.isActiveWindow, timeout=LONG)
    qtbot.keyClick(window, Qt.Key.Key_7, Qt.KeyboardModifier.ControlModifier)
    assert window.side.page == "memory" and window.side.memory.isVisible()
    return window


def worked_out(qtbot: QtBot, window: Window) -> None:
    """Wait until the page has the whole answer for the knobs as they are set."""
    panel = window.side.memory
    qtbot.waitUntil(lambda: not window.memory.busy and panel.peak.state.text() == "", timeout=LONG)
    window.memory.refresh()


def as_set(window: Window, *names: str) -> list[str]:
    return [format_value(window.simulator.requested[name]) for name in names]


def test_the_page_shows_what_the_command_says_and_a_cure_is_one_change(
    qtbot: QtBot, make_window: Callable[..., Window], kept: FootprintProcess, gradstudio: Callable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    window = opened(qtbot, make_window(**OVER))
    worked_out(qtbot, window)
    for name, instead in (("__new__", lambda kind: kept), ("__init__", lambda self: None), ("close", lambda self: 0)):
        monkeypatch.setattr(FootprintProcess, name, instead)
    knobs = [f"{knob.name}={format_value(value)}" for knob, value in window.simulator.requested.items()]
    sets = [word for text in knobs if not text.endswith("=") for word in ("--set", text)]
    said = json.loads(gradstudio("memory", "missing-zero-grad", *sets, "--json").out)
    panel = window.side.memory
    assert panel.peak.figure.text() == texts.size(said["peak"])
    where = texts.place(said["phase"], said["operation"])
    assert panel.peak.text.text() == f"Peak {texts.size(said['peak'])}, {where}."
    told = panel.bars.accessibleDescription().split("; ")
    assert [each.partition(", at most")[0] for each in told] == [
        f"{texts.PARTS[part]}: {texts.size(said[part])}" for part in PARTS
    ]
    assert said["peak"] > 2 * MB and panel.step.text.text().startswith("Over run.memory_budget = 2 MB in the forward")
    assert len([row for row in panel.rows if row.isVisible()]) == len(said["cures"]) >= 2
    middle = panel.curve.at(panel.curve.width() / 2)
    assert " in the " in middle and ", operation " in middle and panel.curve.at(0.0) == ""
    # a cure is applied by a click, and undone as one change
    names = ("problem.batch_size", "accumulation.steps")
    row = window.side.memory.rows[0]
    assert row.text.text().startswith("Batch ") and "same gradient" in row.text.text()
    qtbot.mouseClick(row.apply, Qt.MouseButton.LeftButton)
    size, parts = map(int, as_set(window, *names))
    assert size * parts == 512 and parts > 1
    assert window.side.memory.peak.state.text() and not row.isEnabled()  # faint, until the answer is there
    worked_out(qtbot, window)
    assert window.side.memory.step.text.text() == "Fits into run.memory_budget = 2 MB."
    assert window.side.memory.cures.text.text() == "The step fits as it is."
    assert not any(each.isVisible() for each in window.side.memory.rows)
    window.controls.undo()
    assert as_set(window, *names) == ["512", "1"]


def test_what_saves_next_to_nothing_is_not_offered(qtbot: QtBot) -> None:
    panel, parts = MemoryPanel(), dict.fromkeys(PARTS, 41_500)
    qtbot.addWidget(panel)
    whole = Footprint(249_000, "backward", "aten.mm", parts, parts, 0, (249_000,), (2,), (0,), ("aten.mm",), 1)
    for peak, offered in ((245_000, False), (200_000, True)):
        cure = Cure({"model.checkpointing": True}, peak, same_gradient=True, work=1.35)
        panel.show_footprint(whole, 0, (cure,), complete=True)
        assert panel.rows[0].isVisibleTo(panel) == offered and ("less than 10 %" in panel.cures.text.text()) != offered


def test_the_message_of_a_refused_run_has_a_way_out_and_then_the_restart(
    qtbot: QtBot, make_window: Callable[..., Window]
) -> None:
    window = make_window(**OVER)
    window.controls.run_or_pause()
    qtbot.waitUntil(lambda: window.simulator.run.status == "failed" and bool(window.message.message), timeout=LONG)
    message = window.message
    assert message.message.startswith("Out of memory in the forward pass") and "what fits: batch " in message.message
    assert message.action.isVisible() and message.action.text() == "Apply the first"
    assert message.grab().toImage().pixelColor(message.width() // 2, 3) == theme.color("panel")  # not seen through
    qtbot.mouseClick(message.action, Qt.MouseButton.LeftButton)
    assert message.message.startswith("Set: problem.batch_size = ") and message.action.text() == "Restart"
    qtbot.mouseClick(message.action, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: window.simulator.run.status == "finished", timeout=LONG)
    assert window.simulator.run.experiment.accumulation.steps > 1


def test_only_the_last_of_many_values_is_worked_out_and_nothing_out_of_sight(
    qtbot: QtBot, window: Window, asked: list[Experiment], may_answer: threading.Event
) -> None:
    window.controls.set_knob("problem.batch_size", 17)
    window.refresh(whole=True)
    assert asked == [] and not window.memory.busy
    may_answer.clear()
    opened(qtbot, window)
    qtbot.waitUntil(lambda: len(asked) == 1, timeout=LONG)
    for size in range(20, 60):
        window.controls.set_knob("problem.batch_size", size)
        window.refresh(whole=True)
    may_answer.set()
    worked_out(qtbot, window)
    assert [experiment.problem.batch_size for experiment in asked] == [17, 59]
    count = len(asked)
    window.controls.set_knob("optimizer.lr", 0.003)  # which takes no memory
    window.refresh(whole=True)
    assert not window.memory.busy and window.side.memory.peak.state.text() == ""
    window.columns.show_page("diagnosis")
    window.controls.set_knob("problem.batch_size", 60)
    window.refresh(whole=True)
    assert not window.memory.busy and len(asked) == count
    opened(qtbot, window)
    worked_out(qtbot, window)
    assert asked[-1].problem.batch_size == 60


def test_why_nothing_is_known_is_said_and_the_old_picture_stays_while_a_new_one_is_worked_out(
    qtbot: QtBot, window: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(memory_controller.own_model, "needs_agreement", lambda experiment: True)
        panel = opened(qtbot, window).side.memory
        window.memory.refresh()
        assert panel.peak.text.text() == memory_controller.NOT_AGREED and not panel.bars.isVisible()
    window.memory.refresh()
    assert panel.peak.state.text() == "working it out…" and not panel.bars.isVisible()
    worked_out(qtbot, window)
    drawn, peak = panel.bars.pixmap().toImage(), panel.peak.figure.text()
    window.controls.set_knob("problem.batch_size", 64)
    window.memory.refresh()
    assert panel.peak.state.text() == "working it out…" and panel.peak.figure.text() == peak
    assert panel.bars.isVisible() and panel.bars.pixmap().toImage() != drawn  # faint
    worked_out(qtbot, window)
    assert panel.peak.figure.text() != peak


@pytest.mark.parametrize(("mode", "zoom"), [("light", 1.0), ("dark", 1.5)])
def test_no_text_is_cut(qtbot: QtBot, make_window: Callable[..., Window], mode: str, zoom: float) -> None:
    try:
        theme.set_mode(mode)  # pyright: ignore[reportArgumentType]
        theme.set_zoom(zoom)
        settle(theme)
        window = opened(qtbot, make_window(**OVER))
        window.side.setFixedWidth(round(300 * zoom))
        worked_out(qtbot, window)
        settle(theme)
        qtbot.waitUntil(lambda: not any(map(is_cut, window.side.memory.findChildren(QLabel))), timeout=LONG)
        row = window.side.memory.rows[0]
        assert row.apply.mapTo(window.side, QPoint(row.apply.width(), 0)).x() <= window.side.width()
    finally:
        theme.set_zoom(1.0)
        theme.set_mode("system")
        settle(theme)


def is_cut(label: QLabel) -> bool:
    if not label.isVisible() or not label.pixmap().isNull() or not label.text():
        return False
    if label.wordWrap():
        return label.height() < label.heightForWidth(label.width())
    return label.width() < label.sizeHint().width()


def test_a_window_that_is_closed_leaves_no_process(
    qtbot: QtBot, make_window: Callable[..., Window], monkeypatch: pytest.MonkeyPatch
) -> None:
    """tests/session/test_footprint.py has the real one end so."""
    own = FootprintProcess()
    monkeypatch.setattr(processes, "_CHILD", KNOWS_NOTHING)
    monkeypatch.setattr(memory_controller, "FootprintProcess", lambda: own)
    window = opened(qtbot, make_window())
    qtbot.waitUntil(lambda: not window.memory.busy, timeout=LONG)
    window.memory.refresh()
    assert "nobody knows" in window.side.memory.peak.text.text()
    child = own._child
    assert child is not None and child.poll() is None
    window.close()
    assert child.poll() is not None and own._child is None

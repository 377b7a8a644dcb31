"""Whatever the window makes for a dialog, a menu, a page, a run, an overlay or a file is gone when that is.

Each is done some times; then there are no more threads, descriptors, Qt objects, plot items and objects of this program
than before. tests/torture/ does the same for everything at once."""

from __future__ import annotations

import ast
import contextlib
import weakref
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint
from PySide6.QtWidgets import QApplication, QDialog, QFileDialog, QInputDialog, QMenu
from pytestqt.qtbot import QtBot
from torture import census
from waiting import ENDLESS, LONG

from gradstudio.gui.export import plot_menu
from gradstudio.gui.knobs.knob_row import KnobRow
from gradstudio.gui.knobs.preset_text import PastedPreset
from gradstudio.gui.runs.comparison_dialog import ComparisonDialog
from gradstudio.gui.window import Window
from gradstudio.session.simulator import Simulator

GUI = Path(__file__).parents[2] / "gradstudio" / "gui"
HOME = Path("widgets/popups.py")
LASTING = {(Path("shell/top_bar.py"), "QMenu")}  # the menus of buttons, which stay as long as the window
KINDS = {"QDialog", "QFileDialog", "QInputDialog", "QMessageBox", "QProgressDialog", "QColorDialog", "QFontDialog",
         "QErrorMessage", "QWizard", "QMenu"}  # fmt: skip
TIMES = 3
SOON = 5000  # ms in which threads that have ended let go


def made_elsewhere(gui: Path) -> list[str]:
    """Every place but HOME that makes a dialog or a menu, derives from one, or waits in one, as 'file:line: what'."""
    found = []
    for path in sorted(gui.rglob("*.py")):
        own = path.relative_to(gui)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if own != HOME else ():
            for name in _makes(node):
                if (own, name) not in LASTING:
                    found.append(f"{own}:{getattr(node, 'lineno', 0)}: {name}")
    return found


def _makes(node: ast.AST) -> list[str]:
    match node:
        case ast.Call(func=ast.Name(id=name)) if name in KINDS:
            return [name]
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attribute)) if name in KINDS:
            return [f"{name}.{attribute}"]
        case ast.Call(func=ast.Attribute(value=value, attr="exec")) if ast.unparse(value) != "app":
            return ["exec"]
        case ast.ClassDef(bases=bases):
            return [base.id for base in bases if isinstance(base, ast.Name) and base.id in KINDS]
    return []


def test_one_file_makes_every_dialog_and_menu() -> None:
    assert made_elsewhere(GUI) == []


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("def f():\n    QFileDialog(parent)", "QFileDialog"),
        ("QFileDialog.getOpenFileName(parent)", "QFileDialog.getOpenFileName"),
        ("class Asking(QDialog): pass", "QDialog"),
        ("popups.context_menu(parent).exec(place)", "exec"),
    ],
)
def test_a_dialog_that_another_file_makes_is_found(tmp_path: Path, text: str, what: str) -> None:
    (tmp_path / "a.py").write_text(text)
    [found] = made_elsewhere(tmp_path)
    assert found.startswith("a.py:") and found.endswith(f": {what}")


# ---- what is left


@pytest.fixture
def ran(qtbot: QtBot, window: Window) -> Window:
    window.controls.run_or_pause()
    rests(qtbot, window.simulator)
    window.refresh(whole=True)
    return window


def rests(qtbot: QtBot, simulator: Simulator) -> None:
    """Wait until the run is over and written."""
    qtbot.waitUntil(lambda: simulator.run.over and not simulator.busy, timeout=LONG)
    writer = simulator._library_writer
    qtbot.waitUntil(lambda: writer is not None and not writer._following, timeout=LONG)


def anew(qtbot: QtBot, window: Window) -> None:
    """Leave the run for another one, and with it as many snapshots and samples as there was time for."""
    window.controls.load(window.simulator.preset)
    qtbot.waitUntil(lambda: not window.simulator.busy, timeout=LONG)
    window.refresh(whole=True)


def leaves(qtbot: QtBot, window: Window, do: Callable[[], object]) -> list[str]:
    """What there is more of by kind after this was done some times more."""
    do()
    before, lines = census.take(window), ["not looked yet"]
    for _ in range(TIMES):
        do()

    def nothing() -> bool:  # a thread may take a moment to let go
        nonlocal lines
        window.refresh(whole=True)
        lines = census.left(before, census.take(window))
        return not lines

    with contextlib.suppress(qtbot.TimeoutError):
        qtbot.waitUntil(nothing, timeout=SOON)
    return lines


def dialogs() -> list[QDialog]:
    return [each for each in QApplication.topLevelWidgets() if isinstance(each, QDialog) and each.isVisible()]


def menus() -> list[QMenu]:
    return [each for each in QApplication.allWidgets() if isinstance(each, QMenu) and each.isVisible()]


COMMANDS = ("open_preset", "save_preset", "paste_preset", "export_report.html", "export_train.py", "export_events",
            "rewind", "twins", "list_keys", "about")  # fmt: skip


def test_dialogs_leave_nothing(qtbot: QtBot, ran: Window) -> None:
    def open_all() -> None:
        for turn, command in enumerate(COMMANDS):
            ran.commands.commands[command].call()
            [dialog] = dialogs()
            dialog.close() if turn % 2 else dialog.reject()
            QApplication.processEvents()

    assert leaves(qtbot, ran, open_all) == []


def test_dialogs_that_were_answered_leave_nothing(qtbot: QtBot, ran: Window, tmp_path: Path) -> None:
    curves = tmp_path / "curves.csv"
    curves.write_text("step,loss,norm\n" + "".join(f"{step},{1 + step},{step}\n" for step in range(20)))

    def answer(kind: type[QDialog]) -> QDialog:
        qtbot.waitUntil(lambda: bool(dialogs()), timeout=LONG)
        [dialog] = dialogs()
        assert isinstance(dialog, kind)
        return dialog

    def all_of_them() -> None:
        ran.commands.commands["export_experiment.toml"].call()
        chosen = answer(QFileDialog)
        assert isinstance(chosen, QFileDialog)
        chosen.selectFile(str(tmp_path / f"experiment{next(numbers)}.toml"))
        chosen.accept()
        qtbot.waitUntil(lambda: not ran.jobs._jobs and not dialogs(), timeout=LONG)
        ran.jobs.read_curves(
            curves, partial(plot_menu._choose, ran.context, ran.plots.overlays, ran.plots.loss, curves)
        )
        one = answer(QInputDialog)
        one.accept()
        qtbot.waitUntil(lambda: bool(ran.plots.overlays.places), timeout=LONG)
        ran.plots.overlays.remove(*ran.plots.overlays.slots)
        ran.commands.commands["copy_preset"].call()
        ran.commands.commands["paste_preset"].call()
        answer(PastedPreset).accept()
        qtbot.waitUntil(lambda: not dialogs(), timeout=LONG)

    numbers = count()
    assert leaves(qtbot, ran, all_of_them) == []


def test_menus_leave_nothing(qtbot: QtBot, ran: Window) -> None:
    place = QPoint(3, 3)
    row = ran.findChildren(KnobRow)[0]
    shown = [
        partial(row.customContextMenuRequested.emit, place),
        *(partial(plot.customContextMenuRequested.emit, place) for plot in ran.plots.every),
        partial(ran.side.runs.list.customContextMenuRequested.emit, place),
        partial(ran.side.branches.list.customContextMenuRequested.emit, place),
        *(partial(menu.popup, place) for menu in ran.menuBar().findChildren(QMenu)),
        *(partial(button.menu().popup, place) for button in (ran.top.preset, ran.top.device, ran.top.export)),
    ]

    def show_all() -> None:
        for turn, show in enumerate(shown):
            show()
            for menu in menus():
                menu.close() if turn % 2 else menu.hide()

    assert leaves(qtbot, ran, show_all) == []


def test_runs_twins_and_branches_leave_nothing(qtbot: QtBot, ran: Window) -> None:
    def run_all() -> None:
        ran.controls.start_twins("optimizer.lr", 0.25)
        rests(qtbot, ran.simulator)
        ran.controls.rewind(10)
        qtbot.waitUntil(lambda: ran.simulator.run.status == "paused", timeout=LONG)
        ran.controls.set_knob("optimizer.lr", 0.125)
        ran.controls.run_or_pause()
        rests(qtbot, ran.simulator)
        ran.refresh(whole=True)
        anew(qtbot, ran)

    assert leaves(qtbot, ran, run_all) == []


def test_fixes_leave_nothing(qtbot: QtBot, make_window: Callable[..., Window]) -> None:
    window = make_window(optimizer__lr=1e4)
    window.controls.run_or_pause()
    rests(qtbot, window.simulator)

    def try_them() -> None:
        window.controls.restart()
        rests(qtbot, window.simulator)
        window.fixes.begin()
        trials = window.fixes.trials
        assert trials is not None
        qtbot.waitUntil(lambda: bool(trials.trials[1].outcome), timeout=LONG)
        window.fixes.stop()
        qtbot.waitUntil(lambda: not trials.is_alive(), timeout=LONG)
        anew(qtbot, window)

    assert leaves(qtbot, window, try_them) == []


def test_runs_of_the_library_overlays_and_comparisons_leave_nothing(qtbot: QtBot, ran: Window) -> None:
    ran.controls.restart()
    rests(qtbot, ran.simulator)
    ran.columns.show_page("runs")
    qtbot.waitUntil(lambda: len(ran.side.runs.model.all) == 2, timeout=LONG)
    first, second = (entry.id for entry in ran.side.runs.model.all)

    def use_them() -> None:
        for run in (first, second):
            ran.runs.open(run)
            qtbot.waitUntil(lambda run=run: ran.simulator.run.id == run, timeout=LONG)
        ran.runs.tick(first, True)
        qtbot.waitUntil(lambda: first in ran.plots.overlays.slots, timeout=LONG)
        ran.runs.compare_chosen([first, second])
        qtbot.waitUntil(lambda: bool(dialogs()), timeout=LONG)
        [dialog] = dialogs()
        assert isinstance(dialog, ComparisonDialog)
        dialog.close()
        ran.runs.tick(first, False)
        qtbot.waitUntil(lambda: not ran.context.library.busy, timeout=LONG)

    ran.runs.open(first)
    qtbot.waitUntil(lambda: ran.simulator.run.id == first, timeout=LONG)
    assert leaves(qtbot, ran, use_them) == []


def test_pages_and_gauges_leave_nothing(qtbot: QtBot, make_window: Callable[..., Window]) -> None:
    window = make_window(run__steps=ENDLESS)

    def show_all() -> None:
        window.controls.restart()
        for page in ("diagnosis", "code", "branches", "gauges"):  # the page Runs lists ever more runs
            window.columns.show_page(page)
            window.refresh(whole=True)
        qtbot.waitUntil(lambda: bool(window.simulator.run.gauge_samples), timeout=LONG)
        window.refresh(whole=True)
        anew(qtbot, window)

    assert leaves(qtbot, window, show_all) == []


def test_files_leave_nothing(qtbot: QtBot, ran: Window, tmp_path: Path) -> None:
    def write_all() -> None:
        for name in ("train.py", "experiment.toml", "metrics.csv"):
            ran.jobs.export(ran.simulator.run, name, str(tmp_path / name))
        ran.jobs.export_events(ran.simulator.run, str(tmp_path))
        qtbot.waitUntil(lambda: not ran.jobs._jobs, timeout=LONG)

    assert leaves(qtbot, ran, write_all) == []


def test_a_message_lets_go_of_what_it_offered(window: Window) -> None:
    window.message.show_news("Stopped", action=("Open it again", lambda: None))
    offered = window.message._act
    window.message.hide()
    assert window.message._act is not offered


def test_the_library_thread_holds_no_request_that_it_has_answered(qtbot: QtBot, window: Window) -> None:
    class Held:
        pass

    held = Held()
    gone = weakref.ref(held)
    window.context.library.ask(lambda library, held=held: library.version(), lambda _, held=held: None)
    del held
    qtbot.waitUntil(lambda: not window.context.library.busy, timeout=LONG)
    qtbot.waitUntil(lambda: gone() is None, timeout=LONG)

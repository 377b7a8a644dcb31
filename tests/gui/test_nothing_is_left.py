"""Whatever the window makes for a dialog, a menu, a page, a run, an overlay or a file is gone when that is.

Each is done some times; then there are no more threads, descriptors, Qt objects, plot items and objects of this program
than before. tests/torture/ does the same for everything at once."""

from __future__ import annotations

import ast
import contextlib
import tempfile
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from PySide6.QtCore import QPoint
from PySide6.QtWidgets import QApplication, QDialog, QFileDialog, QInputDialog, QMenu
from pytestqt.qtbot import QtBot
from torture import census
from waiting import ENDLESS, LONG

from gradstudio.gui.export import plot_menu
from gradstudio.gui.knobs.knob_row import KnobRow
from gradstudio.gui.knobs.preset_text import PastedPreset
from gradstudio.gui.runs.comparison_page import ComparisonPage
from gradstudio.gui.window import Window
from gradstudio.session.simulator import Simulator

GUI = Path(__file__).parents[2] / "gradstudio" / "gui"
HOME = Path("widgets/popups.py")
LASTING = {  # the first two stay as long as the window; the third is made anew with the menu that owns it
    (Path("shell") / "top_bar.py", "QMenu"),
    (Path("knobs") / "editors.py", "QMenu"),  # lists the devices
    (Path("shell") / "menus.py", "QMenu"),
    (Path("knobs") / "preset_menu.py", "QMenu"),
}
KINDS = {"QDialog", "QFileDialog", "QInputDialog", "QMessageBox", "QProgressDialog", "QColorDialog", "QFontDialog",
         "QErrorMessage", "QWizard", "QMenu"}  # fmt: skip
TIMES = 2  # that a thing is done between two censuses
Asked = TypeVar("Asked", bound=QDialog)
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


def leaves(qtbot: QtBot, window: Window, *acts: Callable[[QtBot, Window], object]) -> list[str]:
    """What there is more of by kind after these were done some times more."""

    def do_all(times: int) -> None:
        for act in acts * times:
            act(qtbot, window)

    do_all(1)
    before, lines = census.take(window), [""]
    do_all(TIMES)

    def nothing() -> bool:  # a thread may take a moment to let go
        nonlocal lines
        found = census.left(before, census.take(window))
        lines = [line for line in found if not line.startswith("object QText")]  # parts of the text that a label shows
        return not lines

    with contextlib.suppress(qtbot.TimeoutError):
        qtbot.waitUntil(nothing, timeout=SOON)
    return lines


def dialogs() -> list[QDialog]:
    return [each for each in QApplication.topLevelWidgets() if isinstance(each, QDialog) and each.isVisible()]


def the_dialog(qtbot: QtBot, kind: type[Asked]) -> Asked:
    qtbot.waitUntil(lambda: bool(dialogs()), timeout=LONG)
    [dialog] = dialogs()
    assert isinstance(dialog, kind)
    return dialog


COMMANDS = ("palette", "open_preset", "save_preset", "paste_preset", "export_report.html", "export_events", "rewind", "twins",
            "list_keys", "about")  # fmt: skip


def close_dialogs(qtbot: QtBot, window: Window) -> None:
    for turn, command in enumerate(COMMANDS):
        window.commands.commands[command].call()
        [dialog] = dialogs()
        dialog.close() if turn % 2 else dialog.reject()
        QApplication.processEvents()


def export(qtbot: QtBot, window: Window) -> None:
    window.commands.commands["export_experiment.toml"].call()
    dialog = the_dialog(qtbot, QFileDialog)
    dialog.selectFile(f"{tempfile.mkdtemp()}/experiment.toml")
    dialog.accept()
    qtbot.waitUntil(lambda: not window.jobs.busy and not dialogs(), timeout=LONG)


def write_files(qtbot: QtBot, window: Window) -> None:
    for name in ("train.py", "metrics.csv"):
        window.files.export(window.simulator.run, name, f"{tempfile.mkdtemp()}/{name}")
    window.files.export_events(window.simulator.run, tempfile.mkdtemp())
    qtbot.waitUntil(lambda: not window.jobs.busy, timeout=LONG)


def import_curve(qtbot: QtBot, window: Window) -> None:
    curves = Path(tempfile.mkdtemp()) / "curves.csv"
    curves.write_text("step,loss,norm\n" + "".join(f"{step},{1 + step},{step}\n" for step in range(20)))
    use = partial(plot_menu._choose, window.context, window.plots.overlays, window.plots.loss, curves)
    window.files.read_curves(curves, use)
    the_dialog(qtbot, QInputDialog).accept()  # its first curve is chosen
    qtbot.waitUntil(lambda: bool(window.plots.overlays.places), timeout=LONG)
    window.plots.overlays.remove(*window.plots.overlays.slots)


def menus(qtbot: QtBot, window: Window) -> None:
    place = QPoint(3, 3)
    shown = [
        partial(window.findChildren(KnobRow)[0].customContextMenuRequested.emit, place),
        *(partial(plot.customContextMenuRequested.emit, place) for plot in window.plots.every),
        partial(window.side.runs.list.customContextMenuRequested.emit, place),
        partial(window.side.branches.list.customContextMenuRequested.emit, place),
        *(partial(menu.popup, place) for menu in window.menuBar().findChildren(QMenu)),
        *(
            partial(button.menu().popup, place)
            for button in (window.top.preset, window.knobs.device, window.top.export)
        ),
    ]
    for turn, show in enumerate(shown):
        show()
        open_now = [each for each in QApplication.allWidgets() if isinstance(each, QMenu) and each.isVisible()]
        assert open_now
        for menu in open_now:
            menu.close() if turn % 2 else menu.hide()


def test_dialogs_menus_and_files_leave_nothing(qtbot: QtBot, window: Window) -> None:
    window.controls.run_or_pause()
    rests(qtbot, window.simulator)
    window.refresh(whole=True)
    assert leaves(qtbot, window, close_dialogs, export, write_files, import_curve, menus) == []


def pasted_preset(qtbot: QtBot, window: Window) -> None:
    window.commands.commands["copy_preset"].call()
    window.commands.commands["paste_preset"].call()
    the_dialog(qtbot, PastedPreset).accept()
    qtbot.waitUntil(lambda: not dialogs(), timeout=LONG)
    anew(qtbot, window)


def twins_and_a_branch(qtbot: QtBot, window: Window) -> None:
    window.controls.start_twins("optimizer.lr", 0.25)
    rests(qtbot, window.simulator)
    window.refresh(whole=True)
    window.controls.rewind(10)
    qtbot.waitUntil(lambda: window.simulator.run.status == "paused", timeout=LONG)
    window.controls.set_knob("optimizer.lr", 0.125)
    window.controls.run_or_pause()
    rests(qtbot, window.simulator)
    anew(qtbot, window)


def fixes(qtbot: QtBot, window: Window) -> None:
    window.controls.set_knob("optimizer.lr", 1e4)
    window.controls.restart()
    rests(qtbot, window.simulator)
    window.fixes.begin()
    trials = window.fixes.trials
    assert trials is not None
    qtbot.waitUntil(lambda: bool(trials.trials[1].outcome), timeout=LONG)
    window.fixes.refresh()
    window.fixes.stop()
    qtbot.waitUntil(lambda: not trials.is_alive(), timeout=LONG)
    anew(qtbot, window)


def pages_and_gauges(qtbot: QtBot, window: Window) -> None:
    window.controls.set_knob("run.steps", ENDLESS)
    window.controls.restart()
    for page in ("diagnosis", "code", "branches", "gauges"):  # the page Runs lists ever more runs
        window.columns.show_page(page)
        window.refresh(whole=True)
    qtbot.waitUntil(lambda: bool(window.simulator.run.gauge_samples), timeout=LONG)
    anew(qtbot, window)  # seen by the page, which holds what it shows
    window.columns.show_page("diagnosis")


def test_runs_leave_nothing(qtbot: QtBot, window: Window) -> None:
    assert leaves(qtbot, window, pasted_preset, twins_and_a_branch, fixes, pages_and_gauges) == []


def stored_runs(qtbot: QtBot, window: Window) -> None:
    first, second = sorted(entry.id for entry in window.side.runs.model.all)
    for run in (second, first, second):
        if window.simulator.run.id != run:
            window.runs.open(run)
        qtbot.waitUntil(lambda run=run: window.simulator.run.id == run, timeout=LONG)
    window.runs.tick(first, True)
    qtbot.waitUntil(lambda: first in window.plots.overlays.slots, timeout=LONG)
    window.refresh(whole=True)
    window.runs.compare_chosen([first, second])
    qtbot.waitUntil(lambda: isinstance(window.columns.middle.page, ComparisonPage), timeout=LONG)
    window.close_large()
    window.runs.tick(first, False)
    qtbot.waitUntil(lambda: not window.jobs.busy, timeout=LONG)
    window.refresh(whole=True)


def test_runs_of_the_library_overlays_and_comparisons_leave_nothing(qtbot: QtBot, window: Window) -> None:
    for _ in range(2):
        window.controls.restart()
        rests(qtbot, window.simulator)
    window.columns.show_page("runs")
    qtbot.waitUntil(lambda: len(window.side.runs.model.all) == 2, timeout=LONG)
    assert leaves(qtbot, window, stored_runs) == []


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
    qtbot.waitUntil(lambda: not window.jobs.busy, timeout=LONG)
    qtbot.waitUntil(lambda: gone() is None, timeout=LONG)

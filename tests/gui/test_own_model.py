"""A studio file in the window: opened without running it, run once a person agrees, and kept like any other run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from own_models import GOOD, WRITING, preset
from PySide6.QtCore import QMimeData, QPointF, Qt, QUrl
from PySide6.QtGui import QDropEvent, QFontDatabase
from PySide6.QtWidgets import QDialogButtonBox
from pytestqt.qtbot import QtBot
from waiting import LONG

from gradstudio.core import trust
from gradstudio.gui.shell.agreement_dialog import AgreementDialog
from gradstudio.gui.window import Window
from gradstudio.session.library.store import Library

pytestmark = pytest.mark.usefixtures("checked_in_this_process")


def drop(window: Window, path: Path) -> None:
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path))])
    left = Qt.MouseButton.LeftButton
    window.dropEvent(QDropEvent(QPointF(9, 9), Qt.DropAction.CopyAction, data, left, Qt.KeyboardModifier.NoModifier))


def asked(window: Window) -> AgreementDialog | None:
    return next((each for each in window.findChildren(AgreementDialog) if each.isVisible()), None)


def answer(window: Window, button: QDialogButtonBox.StandardButton) -> None:
    dialog = asked(window)
    assert dialog is not None
    dialog.buttons.button(button).click()


def test_a_dropped_file_runs_only_after_its_text_was_shown(qtbot: QtBot, window: Window, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    path = tmp_path / "points.py"
    path.write_text(GOOD.replace("class Net", f"open({str(mark)!r}, 'w').close()\n\n\nclass Net"))
    drop(window, path)
    assert window.simulator.preset.title == "Points in a plane" and asked(window) is None
    window.controls.set_knob("run.steps", 10)
    window.controls.set_knob("run.device", "cpu")
    for act in (window.controls.run_or_pause, window.controls.step):
        act()
        dialog = asked(window)
        assert dialog is not None and dialog.text.toPlainText() == path.read_text()
        answer(window, QDialogButtonBox.StandardButton.Cancel)
        assert not window.simulator.has_begun and not mark.exists()
    window.controls.run_or_pause()
    answer(window, QDialogButtonBox.StandardButton.Ok)
    qtbot.waitUntil(lambda: window.simulator.run.over, timeout=LONG)
    assert window.simulator.run.status == "finished" and mark.exists()
    window.controls.restart()
    assert asked(window) is None
    qtbot.waitUntil(lambda: window.simulator.run.over, timeout=LONG)
    first, window_losses = window.simulator.run, window.simulator.run.history.column("loss").tolist()
    window.controls.rewind(4)
    qtbot.waitUntil(lambda: window.simulator.run.status == "paused", timeout=LONG)
    window.controls.run_or_pause()
    qtbot.waitUntil(lambda: window.simulator.run is not first and window.simulator.run.over, timeout=LONG)
    assert window.simulator.run.history.column("loss").tolist() == window_losses


def test_what_hides_in_a_text_is_shown(qtbot: QtBot, window: Window, tmp_path: Path) -> None:
    path = tmp_path / "points.py"
    hidden = "x = 'user\u202e'" + 300 * " " + "; y = 1\n# quiet\rz = 2\n"
    path.write_bytes((GOOD + hidden).encode())
    drop(window, path)
    window.controls.run_or_pause()
    dialog = asked(window)
    assert dialog is not None
    assert (
        dialog.text.toPlainText().endswith("# quiet\\r\nz = 2\n") and r"x = 'user\u202e'  " in dialog.text.toPlainText()
    )
    assert (
        "2 characters that cannot be seen are written as codes, the first in line 44: \\u202e" in dialog.unseen.text()
    )
    assert dialog.unseen.isVisible() and not dialog.text.horizontalScrollBar().maximum()
    answer(window, QDialogButtonBox.StandardButton.Cancel)


def test_its_knobs_stand_above_all_others_and_go_with_it(window: Window, tmp_path: Path) -> None:
    window.controls.load(preset(tmp_path))
    window.refresh()
    rows = window.knobs.rows
    assert rows["model_file.hidden"].isVisible() and not rows["model.depth"].isVisible()
    rows["model_file.hidden"].asked.emit("model_file.hidden", 5)
    assert window.simulator.requested["model_file.hidden"] == 5
    window.knobs.search.setText("depth")
    window.refresh()
    assert (
        rows["model.depth"].note.text() == "no effect: points.py brings its own model"
        and not rows["model.depth"].isEnabled()
    )
    window.controls.set_knob("model.depth", 7)
    assert "points.py" in window.message.message and window.simulator.requested.model.depth == 2
    window.controls.open_preset("rnn-explosion")
    window.refresh()
    assert "model_file.hidden" not in window.knobs.rows and window.simulator.requested.studio_file is None


def test_a_stored_run_is_opened_and_drawn_and_asked_for(qtbot: QtBot, window: Window, tmp_path: Path) -> None:
    window.controls.load(preset(tmp_path))
    window.controls.run_or_pause()
    qtbot.waitUntil(lambda: window.simulator.run.over, timeout=LONG)
    run = window.simulator.run.id
    window.controls.open_preset("rnn-explosion")
    window.refresh()  # shows its lesson
    window.columns.show_page("runs")
    qtbot.waitUntil(lambda: window.side.runs.model.rowCount() == 1, timeout=LONG)
    trust.agreements().unlink()
    window.runs.open(run)
    qtbot.waitUntil(lambda: window.simulator.run.id == run, timeout=LONG)
    window.refresh()
    assert "build_model" in window.simulator.script()
    window.controls.rewind(3)
    assert asked(window) is not None
    answer(window, QDialogButtonBox.StandardButton.Cancel)
    assert window.simulator.run.id == run
    library = Library(Path(os.environ["GRADSTUDIO_LIBRARY"]))
    assert library.load(run).experiment == window.simulator.run.experiment
    library.close()


def test_a_text_that_a_preset_sets_is_shown_and_ones_own_is_not(qtbot: QtBot, window: Window, tmp_path: Path) -> None:
    good = preset(tmp_path, WRITING)
    logged = good.experiment.with_value("model_file.log", str(tmp_path / "theirs"))
    window.controls.load(good.model_copy(update={"experiment": logged}))
    window.controls.run_or_pause()
    dialog = asked(window)
    assert dialog is not None and dialog.given.toPlainText() == f"model_file.log = {tmp_path / 'theirs'}"
    answer(window, QDialogButtonBox.StandardButton.Cancel)
    assert not window.simulator.has_begun and not (tmp_path / "theirs").exists()
    window.refresh()
    window.knobs.rows["model_file.log"].asked.emit("model_file.log", str(tmp_path / "own"))
    window.controls.run_or_pause()
    assert asked(window) is None
    qtbot.waitUntil(lambda: window.simulator.run.over, timeout=LONG)
    assert (tmp_path / "own").exists() and not (tmp_path / "theirs").exists()


def test_a_bad_file_changes_nothing(window: Window, tmp_path: Path) -> None:
    before = window.simulator.preset
    (tmp_path / "bad.py").write_text("def build_model(:\n")
    drop(window, tmp_path / "bad.py")
    assert window.message.message == "bad.py, line 1: not valid Python: invalid syntax"
    assert window.simulator.preset is before


def test_a_saved_file_is_offered_and_its_new_text_is_asked_for(qtbot: QtBot, window: Window, tmp_path: Path) -> None:
    path = tmp_path / "points.py"
    path.write_text(GOOD)
    drop(window, path)
    window.controls.set_knob("run.steps", 4)
    window.controls.set_knob("model_file.hidden", 5)
    path.write_text("def build_model(:\n")
    qtbot.waitUntil(lambda: "line 1: not valid Python" in window.message.message, timeout=LONG)
    beside = tmp_path / "points.py.new"  # as many editors save
    beside.write_text(GOOD + "# changed\n")
    beside.rename(path)
    qtbot.waitUntil(lambda: "was changed on disk" in window.message.message, timeout=LONG)
    kept = window.simulator.preset.experiment.studio_file
    assert kept is not None and kept.text == GOOD and asked(window) is None
    window.message.action.click()
    dialog = asked(window)
    assert dialog is not None and dialog.text.toPlainText().endswith("# changed\n") and not window.simulator.has_begun
    assert dialog.text.font().family() == QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont).family()
    answer(window, QDialogButtonBox.StandardButton.Cancel)
    requested = window.simulator.requested
    assert requested.studio_file is not None and requested.studio_file.text.endswith("# changed\n")
    assert requested["model_file.hidden"] == 5 and requested.run.steps == 4


def test_what_became_of_the_file_is_told_and_taken_back(qtbot: QtBot, window: Window, tmp_path: Path) -> None:
    path = tmp_path / "points.py"
    path.write_text(GOOD)
    drop(window, path)
    path.write_text(GOOD + "# changed\n")
    qtbot.waitUntil(lambda: "was changed on disk" in window.message.message, timeout=LONG)
    path.write_text(GOOD)
    qtbot.waitUntil(lambda: not window.message.message, timeout=LONG)
    path.unlink()
    qtbot.waitUntil(lambda: "is not on disk any more" in window.message.message, timeout=LONG)
    path.mkdir()
    qtbot.waitUntil(lambda: "is a directory" in window.message.message, timeout=LONG)
    path.rmdir()
    path.write_text(GOOD.replace("hidden=8", "hidden='8'").replace("Net(hidden", "Net(8"))
    qtbot.waitUntil(lambda: "was changed on disk" in window.message.message, timeout=LONG)


def test_a_new_text_that_does_not_take_a_knob_says_so(window: Window, tmp_path: Path) -> None:
    path = tmp_path / "points.py"
    path.write_text(GOOD)
    drop(window, path)
    window.controls.set_knob("model_file.hidden", 5)
    window.controls.set_knob("run.steps", 4)
    path.write_text(GOOD.replace("hidden", "width"))
    window.studio_file.restart(path)
    assert window.message.message == "The new text of points.py does not take what was set: model_file.hidden"
    assert window.simulator.requested.run.steps == 4 and asked(window) is not None

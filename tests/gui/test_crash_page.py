"""A crash file in the window: dropped, looked into, made again by another process, and tried with fixes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PySide6.QtCore import QMimeData, QPointF, Qt, QUrl
from PySide6.QtGui import QDropEvent
from PySide6.QtWidgets import QApplication, QLabel
from pytestqt.qtbot import QtBot
from waiting import LONG

from gradstudio.gui.crash.crash_page import CrashPage
from gradstudio.gui.window import Window
from gradstudio.session.files import crash_answers
from gradstudio.session.files.crash_answers import REPLAYED
from gradstudio.session.files.crash_file import CrashFileError


@pytest.fixture(scope="module")
def crash(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The crash file of a training whose 7th batch overflows."""
    import gradstudio

    folder = tmp_path_factory.mktemp("crash")
    torch.manual_seed(0)
    model = torch.nn.Linear(6, 3)
    optimizer = torch.optim.AdamW(model.parameters())
    one = gradstudio.watch(model, optimizer, record=8, library=folder / "runs.db")
    for step in range(7):
        scores = torch.exp(model(torch.randn(32, 6) * (3000 if step == 6 else 1)))
        loss = torch.log(scores / scores.sum(1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    one.close()
    (path,) = folder.glob("crashes/*.crash")
    return path


def dropped(qtbot: QtBot, window: Window, path: Path) -> CrashPage:
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path))])
    window.dropEvent(
        QDropEvent(QPointF(9, 9), Qt.DropAction.CopyAction, data, Qt.MouseButton.LeftButton, Qt.KeyboardModifier(0))
    )
    qtbot.waitUntil(lambda: isinstance(window.columns.middle.page, CrashPage), timeout=LONG)
    page = window.columns.middle.page
    assert isinstance(page, CrashPage)
    return page


def test_a_dropped_file_is_replayed_and_its_fixes_are_copied(qtbot: QtBot, window: Window, crash: Path) -> None:
    page = dropped(qtbot, window, crash)
    told = [label.text() for label in page.findChildren(QLabel)]
    assert any("torch.optim.AdamW" in each for each in told) and page.table.shown is None  # nothing is made again
    page.replay.click()
    qtbot.waitUntil(lambda: page.table.shown is not None, timeout=LONG)
    shown = page.table.shown
    assert shown is not None and shown.rows[shown.birth].do == "torch.exp"
    assert page.table.currentIndex().row() == shown.birth and page.born.text().startswith("The same as recorded")
    assert "Inf of 96 entries; the first is at [" in page.card.texts[0].parts[1] and page.card.values.pixmap()
    page.try_fixes.click()
    qtbot.waitUntil(lambda: bool(page.fixes.rows), timeout=LONG)
    first = page.fixes.rows[0]
    assert first.fix.held and first.fix.fix == "skip the batch"
    first.copy.click()
    assert QApplication.clipboard().text() == "\n".join(first.fix.lines)
    page.put_away()


def test_a_damaged_file_is_one_line_in_the_window(qtbot: QtBot, window: Window, crash: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.crash"
    path.write_bytes(crash.read_bytes()[:-9])
    assert window.open_file(str(path))
    qtbot.waitUntil(lambda: "cut short or damaged" in window.message.text.text(), timeout=LONG)
    assert window.columns.middle.page is None


def test_the_other_process_says_in_one_line_what_is_wrong(crash: Path, tmp_path: Path) -> None:
    path = tmp_path / "-cut.crash"  # its name is no option
    path.write_bytes(crash.read_bytes()[:-9])
    with pytest.raises(CrashFileError, match="cut short or damaged"):
        crash_answers.ask(path, REPLAYED, "replay")
    assert crash_answers.ask(crash, REPLAYED, "replay", stopped=lambda: True) is None

"""The library thread: what became of a damaged library is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot
from waiting import LONG, PATIENCE

from gradstudio.gui.services.library_thread import LibraryThread
from gradstudio.gui.services.tasks import Tasks
from gradstudio.session.library.store import Library


@pytest.mark.parametrize("damaged", ["before it was opened", "later"])
def test_a_damaged_library_that_was_replaced_is_told_once(damaged: str, qtbot: QtBot, tmp_path: Path) -> None:
    path, told, answers = tmp_path / "library.sqlite3", [], []
    if damaged == "later":
        first = Library.set_aside
    else:
        path.write_bytes(b"no database" * 1000)
        first = Library.entries
    reading = LibraryThread(path, Tasks())
    reading.failed.connect(told.append)
    for work in (first, Library.entries):
        reading.ask(work, answers.append)
    qtbot.waitUntil(lambda: not reading.busy, timeout=LONG)
    assert len(answers) == 2 and len(told) == 1 and "The run library was damaged" in told[0]
    assert reading.close(PATIENCE)

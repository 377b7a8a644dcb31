"""Requests to the run library: what became of a damaged library is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot
from waiting import PATIENCE

from gradstudio.gui.services.jobs import Jobs
from gradstudio.gui.services.library_reader import LibraryReader
from gradstudio.gui.services.message_bar import MessageBar
from gradstudio.session.library.store import Library


@pytest.mark.parametrize("damaged", ["before it was opened", "later"])
def test_a_damaged_library_that_was_replaced_is_told_once(damaged: str, qtbot: QtBot, tmp_path: Path) -> None:
    path, bar, told, answers = tmp_path / "library.sqlite3", MessageBar(), [], []
    qtbot.addWidget(bar)
    if damaged == "later":
        first = Library.set_aside
    else:
        path.write_bytes(b"no database" * 1000)
        first = Library.entries
    bar.show_error = told.append
    jobs = Jobs(bar)
    reading = LibraryReader(path, jobs, bar)
    for work in (first, Library.entries):
        reading.ask(work, answers.append)
    reading.close()
    while jobs.busy:
        jobs.hand_over()
    assert len(answers) == 2 and len(told) == 1 and "The run library was damaged" in told[0]
    assert jobs.close(PATIENCE)

"""The recently opened files and runs, and the recent choices in the command palette, stored in the settings: the latest
first."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from PySide6.QtGui import QAction
from PySide6.QtWidgets import QMenu

from gradstudio.core.text import brief, one_line, plural, shorten
from gradstudio.gui.services.context import Context
from gradstudio.gui.user_settings import RECENT_FILES, RECENT_RUNS, Setting
from gradstudio.session.library.run_entries import Entry
from gradstudio.session.library.store import Library
from gradstudio.session.record.run import Run

MOST = 10
LONGEST = 60  # letters of an entry
Kind = Setting[list[tuple[str, str]]]
KEYS = "1234567890"


def remember(kind: Kind, item: str, title: str = "") -> None:
    """Put a file, by its path, a run, by its id, or a choice, by its name, before the others of its kind."""
    kind.set([(item, title), *((other, its) for other, its in recent_items(kind) if other != item)][:MOST])


def remember_file(path: str) -> None:
    remember(RECENT_FILES, str(Path(path).absolute()))


def remember_run(run: Run) -> None:
    """Put a run before the others, with what distinguishes it from runs with the same title."""
    begun = time.strftime("%d.%m. %H:%M", time.localtime(run.started))
    text = f"{begun}, {plural(len(run.history), 'step', 'steps')}"
    remember(RECENT_RUNS, run.id, f"{shorten(run.title, LONGEST - len(text) - 2)}, {text}")


def recent_items(kind: Kind) -> list[tuple[str, str]]:
    """Return files or runs with their titles, the latest first."""
    return kind.get()[:MOST]


def fill_files(menu: QMenu, context: Context) -> None:
    """Fill a menu with the files that still exist."""
    there = [(path, title) for path, title in recent_items(RECENT_FILES) if Path(path).is_file()]
    if there != recent_items(RECENT_FILES):
        RECENT_FILES.set(there)
    for place, (path, _) in enumerate(there):
        action = _add(menu, place, Path(path).name, partial(context.controls.file_asked.emit, path))
        action.setToolTip(brief(one_line(path)))
    _end(menu, RECENT_FILES, "No file was opened yet")


def fill_runs(menu: QMenu, context: Context) -> None:
    """Fill a menu with runs. Those no longer in the library disappear as soon as that is known; a run that was just
    left may not be in it yet."""
    actions = {
        run: _add(menu, place, title or run, partial(context.controls.open_asked.emit, run))
        for place, (run, title) in enumerate(recent_items(RECENT_RUNS))
    }
    _end(menu, RECENT_RUNS, "No run was opened yet")

    leaving = {run for run in actions if context.simulator.leaves(run)}

    def compare(entries: list[Entry]) -> None:
        gone = actions.keys() - leaving - {entry.id for entry in entries}
        RECENT_RUNS.set([(run, title) for run, title in recent_items(RECENT_RUNS) if run not in gone])
        if menu.isVisible():
            for run in gone:
                actions[run].setEnabled(False)

    if actions and context.library.path.exists():
        context.library.ask(Library.entries, compare)


def _add(menu: QMenu, place: int, text: str, call: Callable[[], object]) -> QAction:
    return menu.addAction(f"&{KEYS[place]}  {shorten(one_line(text), LONGEST).replace('&', '&&')}", call)


def _end(menu: QMenu, kind: Kind, nothing: str) -> None:
    if menu.isEmpty():
        menu.addAction(nothing).setEnabled(False)
        return
    menu.addSeparator()
    menu.addAction("Clear list", partial(kind.set, []))

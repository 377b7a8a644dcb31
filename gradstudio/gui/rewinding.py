"""Going back without the mouse: the dialogs for a step and for batches to pass over, and the memory that snapshots may take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QSettings
from PySide6.QtGui import QActionGroup
from PySide6.QtWidgets import QInputDialog, QMenu

from gradstudio.core.experiment import KNOBS
from gradstudio.core.text import plural
from gradstudio.session.snapshots import BUDGET

if TYPE_CHECKING:
    from gradstudio.gui.window import Window

MEGABYTE = 1 << 20
BUDGETS = (32, 64, 128, 256, 512, 1024, 2048, 4096)  # MB
SKIPPED = "problem.skip_batches"


def budget() -> int:
    """Bytes that snapshots may take, as it was chosen."""
    stored = QSettings().value("snapshots/megabytes")
    return int(stored) * MEGABYTE if str(stored).isdecimal() else BUDGET


def fill_budgets(window: Window, menu: QMenu) -> None:
    """The sizes to choose from, when the menu opens."""

    def choose(size: int) -> None:
        QSettings().setValue("snapshots/megabytes", size)
        window.simulator.snapshots.resize(size * MEGABYTE)

    def fill() -> None:
        menu.clear()
        group, now = QActionGroup(menu), window.simulator.snapshots.budget // MEGABYTE
        for size in sorted({*BUDGETS, now}):
            action = menu.addAction(f"{size:,} MB" if size < 1024 else f"{size / 1024:g} GB", lambda size=size: choose(size))
            action.setCheckable(True)
            action.setChecked(size == now)
            group.addAction(action)

    menu.aboutToShow.connect(fill)
    fill()


def ask_step(window: Window) -> None:
    """Which step to go back to."""
    last = window.plots.timeline.reach
    if not last:
        window.message.show_news("There is no step to go back to yet: press Run first.")
        return
    cursor = window.plots.step_cursor.step
    dialog = QInputDialog(window)
    dialog.setInputMode(QInputDialog.InputMode.IntInput)
    dialog.setWindowTitle("Go back to a step")
    dialog.setLabelText(f"Step to stand before, 0 to {last:,}")
    dialog.setIntRange(0, last)
    dialog.setIntValue(cursor if cursor is not None and 0 <= cursor <= last else max(last - 10, 0))
    dialog.intValueSelected.connect(window.rewind)
    dialog.open()


def ask_skip(window: Window) -> None:
    """How many batches to pass over before the next step."""
    if window.simulator.run.over:
        window.message.show_error("The run is over: go back to one of its steps first, then pass over the batches that come next.")
        return
    passed, most = int(window.simulator.requested[SKIPPED]), int(KNOBS[SKIPPED].maximum)
    dialog = QInputDialog(window)
    dialog.setInputMode(QInputDialog.InputMode.IntInput)
    dialog.setWindowTitle("Skip the next batches")
    already = f" {plural(passed, 'batch was', 'batches were')} skipped already." if passed else ""
    dialog.setLabelText(f"Batches to pass over before the next step, as one does after a loss spike.{already}")
    dialog.setIntRange(1, most - passed)
    dialog.intValueSelected.connect(lambda count: window.ask(SKIPPED, passed + count))
    dialog.open()

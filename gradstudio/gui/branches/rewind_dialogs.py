"""Rewinding without the mouse: the dialogs for a step and for batches to skip, and the memory limit for snapshots."""

from __future__ import annotations

from PySide6.QtGui import QActionGroup
from PySide6.QtWidgets import QInputDialog, QMenu

from gradstudio.core.experiment import KNOBS
from gradstudio.core.text import plural
from gradstudio.gui import user_settings
from gradstudio.gui.services.context import Context
from gradstudio.gui.widgets import popups
from gradstudio.session.record.snapshots import BUDGET
from gradstudio.session.simulator import Simulator

MEGABYTE = 1 << 20
BUDGETS = (32, 64, 128, 256, 512, 1024, 2048, 4096)  # MB
SKIPPED = "problem.skip_batches"


def budget() -> int:
    """Return the user's memory limit for snapshots, in bytes."""
    chosen = user_settings.SNAPSHOT_MEGABYTES.get()
    return BUDGET if chosen is None else int(chosen) * MEGABYTE


def fill_budgets(simulator: Simulator, menu: QMenu) -> None:
    """List the sizes to choose from."""

    def choose(size: int) -> None:
        user_settings.SNAPSHOT_MEGABYTES.set(size)
        simulator.snapshots.resize(size * MEGABYTE)

    group, now = QActionGroup(menu), simulator.snapshots.budget // MEGABYTE
    for size in sorted({*BUDGETS, now}):
        text = f"{size:,} MB" if size < 1024 else f"{size / 1024:g} GB"
        action = menu.addAction(text, lambda size=size: choose(size))
        action.setCheckable(True)
        action.setChecked(size == now)
        group.addAction(action)


def ask_step(context: Context, last: int, cursor: int | None) -> None:
    """Ask for the step to rewind to, up to `last`; `cursor` is the step under the pointer."""
    if not last:
        context.message.show_news("There is no step to rewind to yet: press Run first.")
        return
    dialog = popups.input_dialog(context.parent, "Rewind to step", f"Rewind to the start of step, 0 to {last:,}")
    dialog.setInputMode(QInputDialog.InputMode.IntInput)
    dialog.setIntRange(0, last)
    dialog.setIntValue(cursor if cursor is not None and 0 <= cursor <= last else max(last - 10, 0))
    dialog.intValueSelected.connect(context.controls.rewind)
    dialog.open()


def ask_skip(context: Context) -> None:
    """Ask how many batches to skip before the next step."""
    simulator = context.simulator
    if simulator.run.over:
        context.message.show_error("The run is over: rewind to one of its steps first, then skip the next batches.")
        return
    skipped, most = int(simulator.requested[SKIPPED]), int(KNOBS[SKIPPED].maximum)
    already = f" {plural(skipped, 'batch was', 'batches were')} skipped already." if skipped else ""
    question = f"Batches to skip before the next step, as one does after a loss spike.{already}"
    dialog = popups.input_dialog(context.parent, "Skip next batches", question)
    dialog.setInputMode(QInputDialog.InputMode.IntInput)
    dialog.setIntRange(1, most - skipped)
    dialog.intValueSelected.connect(lambda count: context.controls.set_knob(SKIPPED, skipped + count))
    dialog.open()

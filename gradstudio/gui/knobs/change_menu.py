"""The list of knob changes as a menu: those that can be redone, then those that can be undone, the latest first."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from PySide6.QtWidgets import QMenu

from gradstudio.core.knobs import value_text
from gradstudio.core.text import one_line, shorten
from gradstudio.gui.services.context import Context
from gradstudio.session.undo import Change

MOST_LISTED = 12  # changes of each kind
LONGEST = 60  # letters of a change
TIP = {"undo": "Undoes this change, and every later one", "redo": "Redoes this change, and every earlier one"}


def fill(menu: QMenu, context: Context) -> None:
    """List the latest changes; choosing one undoes or redoes everything up to it."""
    controls, simulator = context.controls, context.simulator
    undone, changes = simulator.undone[:MOST_LISTED], simulator.undoable[:MOST_LISTED]
    for place, change in reversed(list(enumerate(undone))):
        _add(menu, "redo", change, partial(_repeat, controls.redo, place + 1))
    if undone and changes:
        menu.addSeparator()
    for place, change in enumerate(changes):
        _add(menu, "undo", change, partial(_repeat, controls.undo, place + 1))
    if not undone and not changes:
        menu.addAction("No knob was changed yet").setEnabled(False)


def _add(menu: QMenu, what: str, change: Change, call: Callable[[], object]) -> None:
    text = ", ".join(
        f"{name} {value_text(change.before[name])} → {value_text(value)}"
        for name, value in change.after.items()
        if name in change.before
    )
    action = menu.addAction(shorten(one_line(f"{what.capitalize()} {text}"), LONGEST), call)
    action.setToolTip(TIP[what])


def _repeat(call: Callable[[], object], times: int) -> None:
    for _ in range(times):
        call()

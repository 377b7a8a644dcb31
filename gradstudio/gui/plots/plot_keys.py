"""The keys of a plot: + and - zoom, Page Up and Page Down scroll by half a view, Left and Right view the step before or
after, End and Esc the newest."""

from __future__ import annotations

from PySide6.QtCore import Qt

from gradstudio.gui.drawing.shared_cursor import Cursor, StepRange

_Key = Qt.Key


def press(key: int, steps: StepRange, cursor: Cursor, last: int) -> bool:
    """Handle a key; `last` is the last step of the run. Return whether the key has a meaning."""
    here = last if cursor.step is None else cursor.step
    left, width, place = steps.left, steps.right - steps.left, steps.places.of(float(here))
    views: dict[int, tuple[float, float]] = {
        _Key.Key_Plus: (place - width / 4, place + width / 4),
        _Key.Key_Minus: (left - width / 2, left + 1.5 * width),
        _Key.Key_PageUp: (left - width / 2, left + width / 2),
        _Key.Key_PageDown: (left + width / 2, left + 1.5 * width),
    }
    if key in views:
        steps.zoom(*views[key])
        return True
    return cursor.looked.press(key)

"""Widgets and layouts beside or below each other, in one statement."""

from __future__ import annotations

from typing import Any, TypeVar

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QBoxLayout, QHBoxLayout, QLayout, QVBoxLayout, QWidget

Margins = tuple[int, int, int, int]
NO_MARGINS = (0, 0, 0, 0)
Box = TypeVar("Box", bound=QBoxLayout)


def in_row(*parts: Any, of: QWidget | None = None, margins: Margins | None = None, spacing: int = -1) -> QHBoxLayout:
    """Return a row of parts, as the layout `of` a widget. A part is a widget or a layout, a tuple of one with its
    stretch and its alignment, or the stretch of an empty place. Margins and spacing default to Qt's own."""
    return _filled(QHBoxLayout(of) if of is not None else QHBoxLayout(), parts, margins, spacing)


def in_column(*parts: Any, of: QWidget | None = None, margins: Margins | None = None, spacing: int = -1) -> QVBoxLayout:
    """Return a column of parts, which are given as in `in_row`."""
    return _filled(QVBoxLayout(of) if of is not None else QVBoxLayout(), parts, margins, spacing)


def _filled(box: Box, parts: tuple[Any, ...], margins: Margins | None, spacing: int) -> Box:
    if margins is not None:
        box.setContentsMargins(*margins)
    if spacing >= 0:
        box.setSpacing(spacing)
    for part in parts:
        if isinstance(part, int):
            box.addStretch(part)
            continue
        item, *how = part if isinstance(part, tuple) else (part,)
        add: Any = box.addLayout if isinstance(item, QLayout) else box.addWidget
        add(item, *how)
    return box


def tab_behind(before: QWidget, widget: QWidget) -> None:
    """Put a widget that was created later, with everything in it, behind another one in the tab order."""
    last = (_tab_stops(before) or [before])[-1]
    for stop in _tab_stops(widget):
        QWidget.setTabOrder(last, stop)
        last = stop


def _tab_stops(widget: QWidget) -> list[QWidget]:
    inside = (each for each in (widget, *widget.findChildren(QWidget)) if each.window() is widget.window())
    return [each for each in inside if each.focusPolicy() & Qt.FocusPolicy.TabFocus]

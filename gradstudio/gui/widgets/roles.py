"""Roles of labels: the property used by the style sheet."""

from __future__ import annotations

from typing import Any

from PySide6.QtWidgets import QLabel, QWidget


def role_label(text: str, role: str, **properties: Any) -> QLabel:
    label = QLabel(text, **properties)
    label.setProperty("role", role)
    return label


def set_role(widget: QWidget, role: str) -> bool:
    """Give a widget a role; return whether it had another."""
    return set_styled(widget, "role", role)


def set_styled(widget: QWidget, name: str, value: str | None) -> bool:
    """Set a property that the style sheet uses, and restyle the widget; return whether the value is new."""
    if widget.property(name) == value:
        return False
    widget.setProperty(name, value)
    widget.style().unpolish(widget)
    widget.style().polish(widget)
    return True

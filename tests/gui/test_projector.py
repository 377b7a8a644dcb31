"""The projector view: large type, the plots and one card; leaving it puts everything back."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QSettings, Qt
from pytestqt.qtbot import QtBot
from waiting import PATIENCE

from gradstudio.core.colors import DARK, DARK_PROJECTED, LIGHT, LIGHT_PROJECTED
from gradstudio.gui.theme import theme
from gradstudio.gui.window import Window

pytestmark = pytest.mark.shares_window

WAIT = round(1000 * PATIENCE)


def luminance(color: str) -> float:
    """Relative luminance of the WCAG 2.1."""
    parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_all_that_is_read_has_a_contrast_of_seven() -> None:
    for colors, usual in ((LIGHT_PROJECTED, LIGHT), (DARK_PROJECTED, DARK)):
        for role in ("text", "dim", "accent", "bad", "good", "warning"):
            assert contrast(getattr(colors, role), colors.panel) >= 7, role
        assert contrast(colors.dim, colors.panel) > contrast(usual.dim, usual.panel)


def test_it_shows_one_card_in_large_type_and_leaves_as_it_came(qtbot: QtBot, window: Window) -> None:
    call = window.commands.commands
    window.columns.show_page("runs")
    window.columns.setSizes([300, 600, 380])
    window.refresh(whole=True)
    window.setGeometry(40, 50, window.width(), window.height())
    place = window.geometry()
    sizes, zoom, colors = window.columns.sizes(), theme.zoom, theme.colors
    call["projector"].call()
    qtbot.waitUntil(lambda: theme.is_settled, timeout=WAIT)
    assert window.isFullScreen() and theme.zoom == 1.5 and theme.dark == (colors is DARK) and theme.colors is not colors
    lesson, findings = window.lesson, window.findings
    assert window.plots.loss.isVisible() and lesson.isVisible()
    assert not any(part.isVisible() for part in (window.knobs, window.figures, findings, window.top.preset))
    assert [row.isVisible() for row in lesson.steps] == [True, False]  # the step that is to be done now
    assert window.menuBar().height() == 0 and "zoom" not in QSettings().allKeys()
    assert max(window.minimumWidth(), window.minimumSizeHint().width()) <= 1024  # as many projectors have
    call["larger_text"].call()
    assert theme.zoom > 1.6 and "zoom" not in QSettings().allKeys()
    window.setFocus()
    qtbot.keyClick(window, Qt.Key.Key_F5)  # its keys work though the menu is not seen
    qtbot.waitUntil(lambda: window.simulator.run.over, timeout=WAIT)
    window.refresh(whole=True)
    assert [row.isVisible() for row in lesson.steps] == [False, True]
    top = window.top
    assert [each.isVisible() for each in (top.play, top.restart, top.rewind)] == [True, True, True]
    call["projector_card"].call()
    assert findings.isVisible() and not lesson.isVisible()
    call["projector"].call()
    qtbot.waitUntil(lambda: theme.is_settled, timeout=WAIT)
    assert not window.isFullScreen() and (theme.zoom, theme.colors) == (zoom, colors)
    assert window.geometry() == place
    assert window.minimumWidth() > 1024
    assert window.side.page == "runs" and window.columns.sizes() == sizes
    assert all(part.isVisible() for part in (window.knobs, window.figures, window.top.preset, window.side.tabs))
    window.columns.show_page("diagnosis")
    assert findings.isVisible()
    window.columns.show_page("lesson")
    assert [row.isVisible() for row in lesson.steps] == [True, True]
    assert window.menuBar().height() > 0


def test_a_window_that_closes_on_the_projector_opens_as_it_was_before(qtbot: QtBot, window: Window) -> None:
    window.columns.setSizes([300, 600, 380])
    sizes = window.columns.sizes()
    window.commands.commands["projector"].call()
    window.close()
    assert theme.zoom == 1.0 and not window.projector.on and window.columns.sizes() == sizes
    qtbot.waitUntil(lambda: theme.is_settled, timeout=WAIT)
    assert theme.colors in (LIGHT, DARK)

"""What a person sees first: few controls, those that matter, and nothing that cannot act."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractSlider,
    QAbstractSpinBox,
    QApplication,
    QComboBox,
    QLineEdit,
    QScrollBar,
    QTabBar,
    QWidget,
)

from gradstudio.core import presets
from gradstudio.core.experiment import KNOBS
from gradstudio.gui.knobs.essentials import GIVE_WAY, STANDARD, essential
from gradstudio.gui.window import Window

pytestmark = pytest.mark.shares_window

MOST = 35  # controls of the first screen


def shown(window: Window) -> list[str]:
    """The knobs on view, in their order from above."""
    rows = [(row.mapTo(window, row.rect().topLeft()).y(), name) for name, row in window.knobs.rows.items()
            if row.isVisible()]  # fmt: skip
    return [name for _, name in sorted(rows)]


def controls(window: Window) -> list[QWidget]:
    """Everything on the first screen that can be clicked or has the focus, grey or not."""
    kinds = (QAbstractButton, QAbstractSlider, QAbstractSpinBox, QComboBox, QLineEdit)
    found = {widget for kind in kinds for widget in window.findChildren(kind)}
    tabs = [bar for bar in window.findChildren(QTabBar) for _ in range(bar.count())]
    return [
        widget
        for widget in (*found, *tabs)
        if widget.isVisible() and not isinstance(widget, QScrollBar) and not widget.visibleRegion().isEmpty()
    ]


def test_the_first_screen_has_few_controls(make_window: Callable[..., Window]) -> None:
    window = make_window()
    window.resize(1440, 900)
    window.controls.open_preset("rnn-explosion")
    QApplication.processEvents()
    window.refresh(whole=True)
    QApplication.processEvents()
    named = [widget.accessibleName() or type(widget).__name__ for widget in controls(window)]
    menus = [action.text() for action in window.menuBar().actions() if action.isVisible()]
    assert len(named) + len(menus) <= MOST, sorted(named)
    assert window.top.play.text() == "Run" and window.side.page == "lesson"


def test_essentials_stand_first_with_short_names_and_when_they_act(window: Window) -> None:
    assert shown(window) == [
        "run.device", "clipping.kind", "accumulation.steps", "precision.dtype", "schedule.warmup_steps",
        "optimizer.lr", "model.init",
    ]  # fmt: skip
    rows = window.knobs.rows
    assert rows["optimizer.lr"].label.text() == "learning rate" and rows["model.init"].label.text() == "initialization"
    marks = [rows[name]._mark_label().text() for name in ("optimizer.lr", "model.init")]
    assert marks == ["live", "restart"]
    window.controls.set_knob("clipping.kind", "norm")
    window.refresh()
    assert shown(window)[2] == "clipping.max_norm" and "applies" not in rows["clipping.max_norm"].note.text()


def test_all_other_knobs_are_a_click_away_and_what_cannot_act_is_hidden(window: Window) -> None:
    knobs = window.knobs
    assert "more)" in knobs.more.button.text() and not knobs.rows["optimizer.momentum"].isVisible()
    knobs.more.button.click()
    knobs.mistakes.head.button.click()
    window.refresh()
    assert knobs.rows["optimizer.momentum"].isVisible() and not knobs.rows["precision.growth_interval"].isVisible()
    assert knobs.rows["mistakes.never_zero_grad"].isVisible()
    assert not knobs.rows["mistakes.unscale_twice"].isVisible(), "there is no scaler in fp32"
    window.controls.set_knob("precision.dtype", "fp16")
    window.refresh()
    assert knobs.rows["mistakes.unscale_twice"].isVisible() and "precision.scaling" in shown(window)[:6]
    window.controls.set_knob("optimizer.momentum", 0.5)
    knobs.more.button.click()
    window.refresh()
    assert not knobs.rows["optimizer.momentum"].isVisible() and "1 changed" in knobs.more.button.text()


def test_the_knobs_of_a_lesson_are_essential_beside_it() -> None:
    every = {path.stem: presets.read(path) for path in presets.available()}
    assert essential(every["healthy-mlp"]) == list(STANDARD)
    assert "model.activation" in essential(every["deep-sigmoid-vanishing"])
    for preset in every.values():
        names = essential(preset)
        assert len(names) == len(set(names)) and set(names) <= set(KNOBS)
        assert set(STANDARD) - set(names) <= set(GIVE_WAY)


def test_a_lessons_knobs_come_and_go_with_its_preset(window: Window) -> None:
    window.controls.open_preset("deep-sigmoid-vanishing")
    window.refresh()
    assert window.knobs.rows["model.activation"].isVisible()
    window.controls.open_preset("healthy-mlp")
    window.refresh()
    assert not window.knobs.rows["model.activation"].isVisible()
    window.knobs.more.button.click()
    window.refresh()
    assert window.knobs.rows["model.activation"].isVisible()


def test_a_preset_begins_afresh_at_the_top_with_its_lesson(make_window: Callable[..., Window]) -> None:
    window = make_window()
    window.controls.open_preset("rnn-explosion")
    window.controls.set_knob("clipping.kind", "value")
    window.columns.show_page("runs")
    window.knobs.search.setText("lr")
    window.controls.open_preset("rnn-explosion")
    window.refresh(whole=True)
    assert window.simulator.requested == window.simulator.preset.experiment and not window.knobs.search.text()
    assert window.side.page == "lesson"

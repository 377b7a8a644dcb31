"""The page of gauges: measured while it is shown, drawn when there is something new, legible in any size and look."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from counting import calls_of
from PySide6.QtCore import Qt
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QAbstractButton, QApplication, QLabel
from pytestqt.qtbot import QtBot
from waiting import LONG, settle

from gradstudio.core.gauge_samples import NAMES, Exponents, Shares, Sharpness
from gradstudio.gui.gauges.gauge_pictures import ExponentBars, Sparkline, scale_beside
from gradstudio.gui.gauges.gauges_panel import GaugeCard
from gradstudio.gui.shell.pages import LARGE, MORE, PAGES
from gradstudio.gui.theme import theme
from gradstudio.gui.window import Window
from gradstudio.session.record.run_writer import RunWriter

pytestmark = pytest.mark.shares_window


def opened(qtbot: QtBot, window: Window) -> Window:
    window.activateWindow()
    qtbot.waitUntil(window.isActiveWindow, timeout=LONG)
    qtbot.keyClick(window, Qt.Key.Key_6, Qt.KeyboardModifier.ControlModifier)
    assert window.side.page == "gauges" and window.side.gauges.isVisible()
    return window


def stepped(qtbot: QtBot, window: Window, steps: int = 1) -> None:
    for _ in range(steps):
        count = len(window.simulator.run.history)
        window.controls.step()
        qtbot.waitUntil(lambda count=count: len(window.simulator.run.history) == count + 1, timeout=LONG)


def measured(qtbot: QtBot, window: Window) -> None:
    """Wait until every gauge has looked at the step that the run stands at."""
    run = window.simulator.run
    qtbot.waitUntil(
        lambda: all(run.gauge_samples.get(name, [(-1, None)])[-1][0] == len(run.history) for name in NAMES),
        timeout=LONG,
    )
    window.gauges.refresh()


def cards(window: Window) -> dict[str, GaugeCard]:
    return {card.title.text(): card for card in window.side.gauges.cards}


def colors(image: QImage) -> set[int]:
    pixels = np.frombuffer(image.convertToFormat(QImage.Format.Format_RGB32).constBits(), np.uint32)
    return set(np.unique(pixels).tolist())


def test_a_gauge_says_what_it_found_at_the_step_that_the_run_stands_at(qtbot: QtBot, window: Window) -> None:
    opened(qtbot, window)
    assert all(card.text.text() == "Measured at the next step of the run." for card in cards(window).values())
    stepped(qtbot, window, 2)
    measured(qtbot, window)
    told = cards(window)
    assert [card.when.text() for card in told.values()] == ["step 2"] * 5 + ["step 0"]
    assert told["Sharpness"].text.text().startswith("Sharpness ") and "2/lr = " in told["Sharpness"].text.text()
    assert "the batch has 16" in told["Noise scale"].text.text() and "1" not in told["Gradient exponents"].figure.text()
    assert "The loss of the gauge's batch went from" in told["Overshoot"].text.text()
    assert told["Logits"].text.text().startswith("log Z of the outputs is ")
    assert "hidden.0" in told["Activations"].text.text() and "saturated" in told["Activations"].accessibleName()
    assert all(
        card.picture.isVisible() and not card.picture.pixmap().isNull() for card in told.values() if card.picture
    )


def test_nothing_is_measured_while_another_page_is_shown(qtbot: QtBot, window: Window) -> None:
    run = window.simulator.run
    stepped(qtbot, window)
    assert run.gauge_samples == {}
    opened(qtbot, window)
    measured(qtbot, window)
    window.columns.show_page("diagnosis")
    stepped(qtbot, window, 3)
    qtbot.waitUntil(lambda: window.simulator.run.status == "paused", timeout=LONG)
    assert all(found[-1][0] == 1 for found in run.gauge_samples.values())
    opened(qtbot, window)
    measured(qtbot, window)
    qtbot.keyClick(window, Qt.Key.Key_6, Qt.KeyboardModifier.ControlModifier)
    assert not window.side.isVisible()
    stepped(qtbot, window)
    qtbot.waitUntil(lambda: window.simulator.run.status == "paused", timeout=LONG)
    assert all(found[-1][0] == 4 for found in run.gauge_samples.values())


def test_a_window_that_is_minimized_shows_nothing(qtbot: QtBot, window: Window) -> None:
    opened(qtbot, window)
    window.showMinimized()
    window.gauges.refresh()
    assert window.simulator._watched == frozenset()
    window.showNormal()
    window.gauges.refresh()
    assert window.simulator._watched == frozenset(NAMES)


def test_the_page_that_was_left_open_measures_from_the_first_step_on(
    qtbot: QtBot, window: Window, make_window: Callable[..., Window]
) -> None:
    opened(qtbot, window)
    window.close()
    from gradstudio.gui.window import Window as Again

    again = Again(window.simulator.preset)
    qtbot.addWidget(again)
    again.show()
    again.furnish()
    try:
        assert again.side.page == "gauges" and again.simulator._watched == frozenset(NAMES)
    finally:
        again.close()
        assert again.simulator.close(LONG / 1000)


def test_a_run_that_is_over_keeps_its_figures_and_a_branch_has_its_own(qtbot: QtBot, window: Window) -> None:
    opened(qtbot, window)
    stepped(qtbot, window)
    measured(qtbot, window)
    window.controls.run_or_pause()
    run = window.simulator.run
    qtbot.waitUntil(lambda: run.over, timeout=LONG)
    window.gauges.refresh()
    panel = window.side.gauges
    assert panel.note.text().startswith("The run is over") and panel.sharpness.figure.text()
    window.controls.rewind(10)
    branch = window.simulator.run
    qtbot.waitUntil(lambda: {"exponents", "sharpness", "noise_scale"} <= set(branch.gauge_samples), timeout=LONG)
    qtbot.waitUntil(lambda: "overshoot" in branch.gauge_problems or "overshoot" in branch.gauge_samples, timeout=LONG)
    window.gauges.refresh()
    assert panel.sharpness.when.text() == "step 10" and panel.note.text().startswith("Gauges are measured while")
    assert branch is not run


def test_a_run_that_is_over_promises_no_next_step(qtbot: QtBot, window: Window) -> None:
    window.controls.run_or_pause()
    run = window.simulator.run
    qtbot.waitUntil(lambda: run.over, timeout=LONG)
    run.history.activations.clear()
    opened(qtbot, window)
    window.gauges.refresh()
    panel = window.side.gauges
    assert not panel.activations.isVisible() and panel.missing.isVisible() and panel.measure.isVisible()


def test_why_there_is_nothing_is_said_in_place_of_the_picture(qtbot: QtBot, make_window: Callable[..., Window]) -> None:
    window = opened(qtbot, make_window(problem__batch_size=1))
    stepped(qtbot, window)
    qtbot.waitUntil(lambda: "noise_scale" in window.simulator.run.gauge_problems, timeout=LONG)
    window.gauges.refresh()
    card = window.side.gauges.noise_scale
    assert "no halves to compare" in card.text.text() and not card.picture.isVisible() and card.figure.text() == ""


def test_what_has_not_changed_is_not_drawn_again(qtbot: QtBot, window: Window) -> None:
    opened(qtbot, window)
    stepped(qtbot, window)
    measured(qtbot, window)
    qtbot.waitUntil(lambda: window.simulator.run.status == "paused", timeout=LONG)
    pictures = [card.picture for card in window.side.gauges.cards if card.picture]
    drawn: list[int] = []

    def settled() -> bool:
        """Whether what is shown for the first time has its size."""
        before, sizes = list(drawn), [picture.size() for picture in pictures]
        window.gauges.refresh()
        QApplication.processEvents()
        drawn[:] = [picture.pixmap().cacheKey() for picture in pictures]
        return before == drawn and sizes == [picture.size() for picture in pictures]

    qtbot.waitUntil(settled, timeout=LONG)
    for _ in range(20):
        window.gauges.refresh()
    assert [picture.pixmap().cacheKey() for picture in pictures] == drawn
    stepped(qtbot, window)
    measured(qtbot, window)
    assert all(new.pixmap().cacheKey() != old for new, old in zip(pictures, drawn, strict=True))


def test_everything_has_a_name_and_a_help(qtbot: QtBot, window: Window) -> None:
    opened(qtbot, window)
    stepped(qtbot, window)
    measured(qtbot, window)
    for card in window.side.gauges.cards:
        assert card.toolTip() and card.accessibleName().startswith(card.title.text()) and card.accessibleDescription()
        if card.picture:
            assert card.picture.accessibleName() and card.picture.accessibleDescription() == card.text.text()
    assert all(
        button.toolTip()
        for button in window.side.findChildren(QAbstractButton)
        if button in (*window.side.tabs.buttons.values(), window.side.tabs.more)
    )


@pytest.mark.parametrize(("mode", "zoom"), [("light", 1.0), ("dark", 1.5)])
def test_all_pages_fit_side_by_side_and_no_text_is_cut(qtbot: QtBot, window: Window, mode: str, zoom: float) -> None:
    """In 300 px, as at 1280 x 720, and in as much more as larger text needs."""
    try:
        theme.set_mode(mode)
        settle(theme)
        theme.set_zoom(zoom)
        settle(theme)
        opened(qtbot, window)
        window.side.setFixedWidth(round(300 * zoom))
        stepped(qtbot, window)
        measured(qtbot, window)
        qtbot.wait(50)
        tabs = (*window.side.tabs.buttons.values(), window.side.tabs.more)
        assert len(tabs) == len(PAGES) - len(LARGE) - len(MORE) + 1 == 5
        places = [tab.geometry() for tab in tabs]
        for page in ("diagnosis", "lesson", "branches", "runs", "gauges"):
            window.columns.show_page(page)
            assert [tab.geometry() for tab in tabs] == places  # whichever is chosen
        assert places[0].left() >= 0 and places[-1].right() < window.side.width()
        assert all(one.right() < other.left() for one, other in pairwise(places))
        settle(theme)
        for label in window.side.gauges.findChildren(QLabel):
            if label.isVisible() and label.pixmap().isNull() and label.text():
                assert (
                    label.height() >= label.heightForWidth(label.width())
                    if label.wordWrap()
                    else label.width() >= label.sizeHint().width()
                )
        image = window.side.gauges.exponents.picture.pixmap().toImage()
        assert len(colors(image)) > 5
    finally:
        window.side.setMinimumWidth(0)
        theme.set_zoom(1.0)
        settle(theme)
        theme.set_mode("system")
        settle(theme)


# ---- the pictures


def spread(scale: float, *exponents: int) -> Exponents:
    counts = np.zeros(277, np.int64)
    for exponent in exponents:
        counts[exponent + 149] = 100
    none = Shares(0.0, 0.0, 0.0)
    return Exponents(counts, 0, 0, none, scale, none, 2.0**10, none)


@pytest.mark.parametrize("exponents", [(-40, -30, -20), (-149, 127), (0,), ()])
@pytest.mark.parametrize("scale", [1.0, 65536.0, 2.0**-20, 0.0])
def test_bars_stand_where_their_exponents_are_and_the_outline_beside_them(
    qtbot: QtBot, scale: float, exponents: tuple[int, ...]
) -> None:
    bars = ExponentBars()
    qtbot.addWidget(bars)
    bars.resize(400, bars.height())
    blank = bars.pixmap().toImage()
    bars.show_of(spread(scale, *exponents))
    image = bars.pixmap().toImage()
    assert image != blank and image.width() == 400
    assert scale_beside(bars._shown) == (1024.0 if scale == 1 else scale)


def test_bars_are_filled_from_the_foot_up(qtbot: QtBot) -> None:
    bars = ExponentBars()
    qtbot.addWidget(bars)
    bars.resize(520, bars.height())  # 10 px for each of the 52 powers of two from -34 to 18
    bars.show_of(spread(1.0, -20))
    image = bars.pixmap().toImage()
    middle = bars.height() // 2
    filled = [
        x for x in range(520) if image.pixelColor(x, middle).alpha() > 100 and image.pixelColor(x, middle).blue() > 100
    ]
    assert filled and (min(filled), max(filled)) == (140, 149)


@pytest.mark.parametrize(
    "values",
    [[1.0, 2.0, 3.0], [1.0, math.inf, 3.0], [math.nan] * 3, [-1.0, 0.0, 1e-30], [5.0] * 3, [1e-300, 1e300, 1.0]],
)
def test_a_sparkline_draws_whatever_comes(qtbot: QtBot, values: list[float]) -> None:
    line = Sparkline("Sharpness over the steps")
    qtbot.addWidget(line)
    line.resize(300, line.height())
    blank = line.pixmap().toImage()
    line.show_of([1, 5, 9], values, [2.0, math.inf, 2.0], "2/lr")
    assert line.pixmap().toImage() != blank
    line.show_of([4], values[:1], [2.0], "2/lr")


def test_what_cannot_be_drawn_is_marked_and_not_hidden(qtbot: QtBot) -> None:
    line = Sparkline("Overshoot over the steps")
    qtbot.addWidget(line)
    line.resize(300, line.height())
    bad = theme.color("bad").rgb()
    line.show_of([0, 1, 2], [1.0, 1.5, 1.2], [math.inf] * 3, "")
    assert bad not in colors(line.pixmap().toImage())
    line.show_of([0, 1, 2], [1.0, math.inf, 1.2], [math.inf] * 3, "")
    assert bad in colors(line.pixmap().toImage())


def test_a_long_run_of_samples_takes_no_longer_to_draw(qtbot: QtBot, window: Window) -> None:
    """256 are kept at the most."""
    run, panel = window.simulator.run, window.side.gauges
    opened(qtbot, window)
    writer = RunWriter(run)

    def cost(step: int) -> int:
        writer.add_gauge_sample("sharpness", (step, Sharpness(10 + step % 7, 20.0, 0.1, False, True, 3)))
        return calls_of(lambda: panel.refresh(run))

    costs = [cost(step) for step in range(550)]  # thinned out at 256, and at every 64th behind it
    assert 128 < len(run.gauge_samples["sharpness"]) <= 256
    assert max(costs[300:]) <= max(costs[:300])


def test_gauges_that_were_not_measured_are_one_line_with_a_way_to_measure_them(qtbot: QtBot, window: Window) -> None:
    window.controls.run_or_pause()  # while nobody looks at the page
    qtbot.waitUntil(lambda: window.simulator.run.over, timeout=LONG)
    opened(qtbot, window)
    window.refresh(whole=True)
    panel = window.side.gauges
    shown = [card for card in (panel.clipping, *panel.cards) if card.isVisible()]
    assert panel.missing.isVisible() and panel.clipping not in shown and panel.sharpness not in shown
    qtbot.mouseClick(panel.measure, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: "sharpness" in window.simulator.run.gauge_samples, timeout=LONG)
    window.refresh(whole=True)
    assert panel.sharpness.isVisible() and panel.clipping.y() < panel.exponents.y() and not panel.missing.isVisible()

"""The gallery: what stands on its cards, and the ways in and out of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QSettings, Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot
from waiting import PATIENCE

from gradstudio.core import files, presets
from gradstudio.gui import user_settings
from gradstudio.gui import window as windows
from gradstudio.gui.gallery.gallery_card import GalleryCard
from gradstudio.gui.window import Window

BUNDLED = {path.stem for path in files.PRESETS.glob("*.toml")}


@pytest.fixture
def opened(qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Window]:
    """A window as the program opens it without a preset."""
    QSettings().clear()
    monkeypatch.setenv("GRADSTUDIO_LIBRARY", str(tmp_path / "runs.sqlite3"))
    for limit in ("CLOSING", "LAST"):
        monkeypatch.setattr(windows, limit, PATIENCE)
    window = Window(presets.load("rate-too-high"), gallery=True)
    qtbot.addWidget(window)
    window.resize(1280, 720)
    window.show()
    assert window.gallery_page.isVisible(), "from the first paint on"
    window.furnish()
    window.heartbeat.start()
    yield window
    window.close()
    assert window.simulator.close(PATIENCE)


def card(window: Window, preset: str) -> GalleryCard:
    return next(each for each in window.gallery_page.cards if each.preset.id == preset)


def visible(window: Window) -> set[str]:
    return {each.preset.id for each in window.gallery_page.cards if each.isVisible()}


def test_a_message_is_seen_over_the_gallery_and_goes_with_the_person(opened: Window, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def build_model(:\n")
    opened.controls.open_preset(tmp_path / "bad.py")
    message, done = opened.message, []
    assert message.message == "bad.py, line 1: not valid Python: invalid syntax"
    assert message.parentWidget() is opened.gallery_page and opened.gallery_page.isVisible()
    assert message.geometry().bottom() == opened.gallery_page.rect().bottom()
    message.show_news("Changed.", action=("Undo", lambda: done.append(1)))
    opened.show_plots()
    assert message.message == "Changed." and message.parentWidget() is opened.plots.scale_and_rate.parentWidget()
    opened.show_gallery()
    assert message.message == "Changed."
    message.action.click()
    assert done == [1] and not message.message


def test_a_person_finds_opens_and_finishes_lessons(qtbot: QtBot, opened: Window) -> None:
    page = opened.gallery_page
    assert visible(opened) == BUNDLED and page.search.hasFocus()
    assert not page.last.isVisible() and page.next.text() == "Next lesson: A healthy network"
    groups = [each.preset.group for each in page.wall.order]
    assert groups == sorted(groups, key=presets.GROUPS.index)
    page.by_order.click()
    assert page.wall.order[0].preset.id == "healthy-mlp"
    assert "after A healthy network" in card(opened, "rate-too-low").accessibleName()
    QTest.keyClicks(page.search, "log zero")
    assert "log-of-zero" in visible(opened) and "rnn-explosion" not in visible(opened)
    page.search.setText("no such words")
    assert not visible(opened) and page.empty.isVisible()
    page.search.clear()

    QTest.keyClick(page.search, Qt.Key.Key_Down)
    first = page.wall.order[0]
    assert first.hasFocus()
    QTest.keyClick(first, Qt.Key.Key_Right)
    assert page.wall.order[1].hasFocus()
    QTest.keyClick(page, Qt.Key.Key_Escape)
    assert opened.columns.isVisible() and not page.isVisible() and opened.simulator.preset.id == "rate-too-high"

    opened.commands.commands["gallery"].call()
    card(opened, "rate-too-low").click()
    assert opened.columns.isVisible() and opened.simulator.preset.id == "rate-too-low"
    opened.lesson.finished.emit(opened.simulator.preset)
    assert card(opened, "rate-too-low").finished and QSettings().value("finished") == ["rate-too-low"]
    assert "finished" in card(opened, "rate-too-low").accessibleName()


def test_running_leads_to_the_plots_and_the_last_run_is_a_click_away(qtbot: QtBot, opened: Window) -> None:
    opened.simulator.set_speed(1e9)
    opened.commands.commands["run"].call()
    qtbot.waitUntil(lambda: opened.simulator.run.over, timeout=1000 * PATIENCE)
    qtbot.waitUntil(opened.columns.isVisible, timeout=1000 * PATIENCE)
    run = opened.simulator.run.id
    opened.controls.open_preset("healthy-mlp")
    opened.toggle_gallery()
    page = opened.gallery_page
    qtbot.waitUntil(lambda: page.last.text() == "Last run: Too high a rate, diverged", timeout=1000 * PATIENCE)
    assert page.last.isVisible()
    opened.refresh()
    assert page.isVisible(), "nothing has begun"
    page.last.click()
    qtbot.waitUntil(lambda: opened.simulator.run.id == run, timeout=1000 * PATIENCE)
    assert opened.columns.isVisible()
    page.at_start.click()
    assert QSettings().value("gallery") in (False, "false")


def test_what_another_program_left_in_the_settings_does_no_harm(make_window) -> None:
    for left in (7, ["a", 3, "x" * 5000, ""], {"a": 1}, "healthy-mlp"):
        QSettings().setValue("finished", left)
        assert user_settings.FINISHED_LESSONS.get() <= {"a", "healthy-mlp"}


def test_titles_come_first_and_the_count_says_how_many_are_shown(opened: Window) -> None:
    page = opened.gallery_page
    assert page.about.text() == f"{len(BUNDLED)} presets, 0 of {len(BUNDLED)} lessons finished"
    QTest.keyClicks(page.search, "clip")
    headings = [heading.text() for heading, _ in page.wall._sections]
    titled, others = (cards for _, cards in page.wall._sections)
    assert headings == ["IN THE TITLE", "ALSO ABOUT"]
    assert "clip-after-step" in {each.preset.id for each in titled} and all("clip" in each.named for each in titled)
    assert not any("clip" in each.named for each in others)
    told = ["clip" in each.preset.summary.casefold() for each in others]
    assert told == sorted(told, reverse=True) and {True, False} == set(told)
    assert page.about.text() == f"{len(titled) + len(others)} of {len(BUNDLED)} presets"
    assert len(visible(opened)) < len(BUNDLED)


def test_a_card_keeps_the_answer_of_a_lesson_until_it_is_finished(opened: Window) -> None:
    asked = card(opened, "rnn-explosion")
    assert asked.secret and asked.told == "A recurrent network with relu reads a digit pixel by pixel."
    assert "explodes" not in asked.toolTip() + asked.accessibleName()
    before = asked.grab().toImage()
    opened.gallery.finish(asked.preset)
    assert not asked.secret and "the gradient explodes" in asked.told and asked.grab().toImage() != before


def test_on_a_wide_screen_the_cards_are_larger(opened: Window) -> None:
    page = opened.gallery_page
    sizes = []
    for width in (1280, 2560):
        opened.resize(width, 1000)
        cards = [each for each in page.wall.order if each.preset.group == "accumulation"]
        sizes.append(cards[0].size())
        line = [each for each in cards if each.y() == cards[0].y()]
        assert page.wall.width() - line[-1].geometry().right() < 60, "a full line of cards uses the width"
    assert sizes[1].width() > 1.3 * sizes[0].width() and sizes[1].height() > sizes[0].height()


def test_the_title_names_what_is_in_sight_and_page_keys_lead_to_the_page(qtbot: QtBot, opened: Window) -> None:
    assert opened.windowTitle() == "Gallery — GradStudio"
    for key, page in ((Qt.Key.Key_4, "runs"), (Qt.Key.Key_4, "runs"), (Qt.Key.Key_2, "diagnosis")):
        opened.show_gallery()
        qtbot.keyClick(opened, key, Qt.KeyboardModifier.ControlModifier)
        assert opened.side.isVisible() and opened.side.page == page, "also where it was the page before"
        assert opened.windowTitle() == "Lesson — GradStudio"
    opened.show_gallery()
    qtbot.keyClick(opened, Qt.Key.Key_1, Qt.KeyboardModifier.ControlModifier)
    assert opened.knobs.isVisible()

"""The code panel: the program of the knobs as asked for, what the last change altered, and its way into a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QTextCursor
from PySide6.QtWidgets import QApplication, QFileDialog, QPushButton
from pytestqt.qtbot import QtBot
from waiting import ENDLESS, LONG, settle

from gradstudio.core.events import Change
from gradstudio.core.experiment import KNOBS
from gradstudio.gui.code.code_panel import CAPTION, MAY_BREAK, OF_RESTART
from gradstudio.gui.code.code_view import MARGIN, ChangedLines, CodeView, changed_lines
from gradstudio.gui.shell.pages import PAGES
from gradstudio.gui.theme import theme
from gradstudio.gui.window import Window

pytestmark = pytest.mark.shares_window

LEFT, CONTROL = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.ControlModifier


@pytest.fixture
def coded(window: Window) -> Window:
    """A window turned to the code."""
    window.columns.show_page("code")
    window.refresh()
    return window


def segment(window: Window, choice: str) -> QPushButton:
    return next(button for button in window.knobs.findChildren(QPushButton) if button.property("choice") == choice)


def note(window: Window) -> str:
    return window.side.code.note.text().replace(MAY_BREAK, "")


def marked(window: Window) -> list[str]:
    lines = window.side.code.text.splitlines()
    return [lines[line].strip() for line in window.side.code.view.changed.lines]


@pytest.mark.parametrize(
    ("before", "after", "lines", "gaps"),
    [
        ("a\nb\nc", "a\nb\nc", (), ()),
        ("a\nb\nc", "a\nx\nc", (1,), ()),
        ("a\nc", "a\nb\nb\nc", (1, 2), ()),
        ("a\nb\nc", "a\nc", (), (1,)),
        ("a\nb", "a", (), (1,)),
        ("", "a", (0,), ()),
        ("a\nb\nc\nd", "x\nb\nd\ne", (0, 3), (2,)),
    ],
)
def test_what_has_changed(before: str, after: str, lines: tuple[int, ...], gaps: tuple[int, ...]) -> None:
    assert changed_lines(before, after) == ChangedLines(lines, gaps)


def test_a_mistake_is_looked_at_first() -> None:
    assert ChangedLines((1, 3)).to_look_at("a\nb\nc\nd  # MISTAKE\ne") == 3
    assert ChangedLines((1,), (0,)).to_look_at("a\nb") == 0
    assert ChangedLines().to_look_at("a") is None


def test_the_program_is_shown_and_nothing_is_marked_at_first(coded: Window) -> None:
    text = coded.side.code.text
    assert text == coded.simulator.script()
    compile(text, "train.py", "exec")
    assert marked(coded) == [] and note(coded) == "" and coded.side.code.view.isReadOnly()


def test_a_knob_marks_the_lines_that_it_changes(qtbot: QtBot, coded: Window) -> None:
    qtbot.mouseClick(segment(coded, "norm"), LEFT)
    coded.refresh()
    assert marked(coded) == ["nn.utils.clip_grad_norm_(model.parameters(), 1.0)"]
    assert note(coded).endswith("clipping.kind none → norm")
    view = coded.side.code.view
    place = view.cursorRect(QTextCursor(view.document().findBlockByNumber(view.changed.lines[0])))
    assert view.viewport().rect().contains(place)  # scrolled to
    coded.controls.set_knob("optimizer.lr", 0.05)
    coded.refresh()
    assert len(marked(coded)) == 2 and "lr=0.05" in marked(coded)[0]  # of every knob that differs from the preset
    coded.close_large()
    coded.controls.set_knob("optimizer.momentum", 0.5)
    coded.columns.show_page("code")
    coded.refresh()
    assert "momentum=0.5" in marked(coded)[0]  # set while the page was not seen


def test_it_opens_at_the_training_loop_and_keeps_no_place_of_another_preset(window: Window) -> None:
    window.resize(1440, 900)
    for preset in ("rnn-explosion", "rate-too-high"):
        window.controls.open_preset(preset)
        window.refresh(whole=True)
        window.columns.show_page("code")
        window.refresh()
        view = window.side.code.view
        loop = view.document().find("for step in range(")
        assert view.viewport().rect().contains(view.cursorRect(loop))
        view.verticalScrollBar().setValue(0)
    assert view.viewportMargins().left() > 20  # for the numbers of the lines


def test_a_knob_that_goes_on_moving_is_held_against_where_it_began(coded: Window) -> None:
    for value in (0.1, 0.2, 0.3):
        coded.controls.set_knob("gradients.noise_std", value)
        coded.refresh()
    assert len(marked(coded)) > 1 and note(coded).endswith("gradients.noise_std 0 → 0.3")
    coded.controls.set_knob("gradients.noise_std", 0.0)
    coded.refresh()
    assert marked(coded) == [] and note(coded) == ""


def test_what_changes_no_line_says_so(coded: Window) -> None:
    coded.controls.set_knob("clipping.max_norm", 0.5)
    coded.refresh()
    assert note(coded) == "clipping.max_norm 1 → 0.5: no line changed"


def test_what_is_taken_out_is_a_triangle_in_the_margin(make_window: Callable[..., Window]) -> None:
    coded = make_window(clipping__kind="norm")
    coded.columns.show_page("code")
    coded.refresh()
    coded.controls.set_knob("clipping.kind", "none")
    coded.refresh()
    view = coded.side.code.view
    [gap] = view.changed.gaps
    assert view.changed.lines == () and note(coded) == "▶ clipping.kind norm → none"
    top = view.cursorRect(QTextCursor(view.document().findBlockByNumber(gap))).top()
    picture = view.viewport().grab().toImage()
    accented = {
        x
        for x in range(60)
        for y in range(top - 4, top + 5)
        if picture.pixelColor(x, y).name() == theme.color("accent").name()
    }
    assert accented and max(accented) < MARGIN  # none of it under the text


def test_a_gap_at_the_end_is_below_the_last_line(qtbot: QtBot) -> None:
    view = CodeView()
    qtbot.addWidget(view)
    view.show_code("a\nb", ChangedLines((), (2,)))
    assert (
        view._notch(2).boundingRect().center().y()
        > view._notch(1).boundingRect().center().y()
        > view._notch(0).boundingRect().center().y()
    )


def test_several_knobs_are_named_where_they_fit(coded: Window) -> None:
    coded.controls.set_knob("problem.task", "ring")
    coded.refresh()
    assert note(coded) == "■ model.kind gan, problem.task ring"
    for name, value in {
        "optimizer.lr": 0.5,
        "optimizer.momentum": 0.25,
        "run.seed": 9,
        "gradients.noise_std": 0.5,
    }.items():
        coded.controls.set_knob(name, value)
        coded.refresh()
    assert note(coded) == "■ 6 knobs" and "model.kind = gan" in coded.side.code.note.toolTip().splitlines()
    coded.controls.reset_knobs()
    coded.refresh()
    assert note(coded) == "" and not marked(coded)


def test_the_caption_tells_whose_program_it_is(qtbot: QtBot, make_window: Callable[..., Window]) -> None:
    window = make_window(run__steps=ENDLESS)
    window.columns.show_page("code")
    code = window.side.code
    qtbot.mouseClick(window.top.step, LEFT)
    qtbot.waitUntil(lambda: len(window.simulator.run.history) == 1, timeout=LONG)
    window.refresh()
    assert code.caption.text() == CAPTION
    window.controls.set_knob("model.width", 16)
    window.refresh()
    assert code.caption.text() == OF_RESTART.format(" as it began") and code.caption.text() in code.save.toolTip()
    window.controls.set_knob("model.width", 8)
    window.refresh()
    assert code.caption.text() == CAPTION
    for choice in ("norm", "none"):  # there and back: the knobs are those of the start, the run is not
        qtbot.mouseClick(segment(window, choice), LEFT)
        qtbot.waitUntil(lambda choice=choice: window.simulator.run.in_force.clipping.kind == choice, timeout=LONG)
        window.refresh()
        assert code.caption.text() == (
            OF_RESTART.format(" with its 1 change") if choice == "norm" else CAPTION
        )  # what is taken back leaves no trace
    for choice in ("norm", "none"):
        qtbot.mouseClick(segment(window, choice), LEFT)
        qtbot.waitUntil(lambda choice=choice: window.simulator.run.in_force.clipping.kind == choice, timeout=LONG)
        count = len(window.simulator.run.history) + 1
        qtbot.mouseClick(window.top.step, LEFT)
        qtbot.waitUntil(lambda count=count: len(window.simulator.run.history) == count, timeout=LONG)
    window.refresh()
    assert (
        code.caption.text() == OF_RESTART.format(" with its 2 changes") and code.caption.text() in code.save.toolTip()
    )
    qtbot.mouseClick(window.top.restart, LEFT)
    window.refresh()
    assert code.caption.text() == CAPTION and OF_RESTART[:9] not in code.save.toolTip()


def test_the_preset_s_own_changes_are_no_other_program(qtbot: QtBot, coded: Window) -> None:
    coded.simulator.load(coded.simulator.preset.model_copy(update={"timeline": (Change(2, "optimizer.lr", 0.5),)}))
    qtbot.mouseClick(coded.top.play, LEFT)
    qtbot.waitUntil(lambda: coded.simulator.run.over, timeout=LONG)
    coded.refresh()
    assert len(coded.simulator.run.timeline) == 1 and coded.side.code.caption.text() == CAPTION


def test_a_mistake_has_the_colour_of_a_warning(coded: Window) -> None:
    coded.controls.set_knob("mistakes.never_zero_grad", True)
    coded.refresh()
    document = coded.side.code.view.document()
    block = document.find("# MISTAKE").block()
    colors = {part.format.foreground().color().name() for part in block.layout().formats()}
    assert colors == {theme.color("warning").name()}


def test_colours_follow_the_theme(coded: Window) -> None:
    for mode in ("light", "dark"):
        theme.set_mode(mode)
        settle(theme)
        block = coded.side.code.view.document().find("import torch").block()
        [keyword] = [part for part in block.layout().formats() if part.start == 0]
        assert keyword.format.foreground().color().name() == theme.color("accent").name()
    theme.set_mode("system")
    settle(theme)


def test_a_docstring_over_several_lines_is_a_string_throughout(qtbot: QtBot) -> None:
    view = CodeView()
    qtbot.addWidget(view)
    view.show_code('x = 1\n"""Begins\nfor a while\nand ends."""\nfor y in x:\n    z = "a # b"  # c', ChangedLines())
    roles = []
    block = view.document().begin()
    while block.isValid():
        roles.append([(part.start, part.format.foreground().color().name()) for part in block.layout().formats()])
        block = block.next()
    string, keyword, comment = (theme.color(role).name() for role in ("good", "accent", "dim"))
    assert roles[1:4] == [[(0, string)], [(0, string)], [(0, string)]]
    assert roles[4] == [(0, keyword), (6, keyword)] and roles[5] == [(8, string), (17, comment)]


def test_it_is_made_only_while_it_is_seen(coded: Window, qtbot: QtBot) -> None:
    shown = coded.side.code.text
    qtbot.mouseClick(coded.columns.middle.frame.back, LEFT)
    coded.controls.set_knob("optimizer.lr", 0.05)
    coded.refresh()
    assert coded.side.code.text == shown
    qtbot.keyClick(coded, Qt.Key.Key_3, CONTROL)
    coded.refresh()
    assert "lr=0.05" in coded.side.code.text and len(marked(coded)) == 1


def test_another_preset_begins_without_marks(coded: Window, qtbot: QtBot) -> None:
    coded.controls.open_preset("rnn-explosion")  # shows its lesson
    qtbot.keyClick(coded, Qt.Key.Key_3, CONTROL)
    coded.refresh()
    assert marked(coded) == [] and "RNN explosion" in coded.side.code.text.splitlines()[0]


def test_the_preset_s_own_changes_are_in_it(coded: Window) -> None:
    preset = coded.simulator.preset
    coded.simulator.load(preset.model_copy(update={"timeline": (Change(7, "optimizer.lr", 0.625),)}))
    coded.refresh()
    assert "0.625" in coded.side.code.text


def test_it_is_copied_and_saved(qtbot: QtBot, coded: Window, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    qtbot.mouseClick(coded.side.code.copy, LEFT)
    assert QApplication.clipboard().text() == coded.side.code.text and coded.side.code.copy.text() == "Copied"
    qtbot.mouseClick(coded.side.code.save, LEFT)
    [dialog] = coded.findChildren(QFileDialog)
    path = tmp_path / "train.py"
    dialog.fileSelected.emit(str(path))
    dialog.close()
    qtbot.waitUntil(path.exists, timeout=LONG)  # a message may be on view that tells of something else
    assert path.read_text() == coded.simulator.script()


def test_keys_show_and_hide_each_page(qtbot: QtBot, window: Window) -> None:
    def press(key: Qt.Key) -> None:
        qtbot.keyClick(window, key, CONTROL)

    press(Qt.Key.Key_3)
    code, plots = window.side.code, window.plots
    assert window.columns.middle.page is code and code.isVisible() and not plots.isVisible()
    assert window.side.isVisible() and code.view.hasFocus()
    press(Qt.Key.Key_3)
    assert plots.isVisible() and plots.loss.widget.hasFocus() and window.side.isVisible()
    press(Qt.Key.Key_2)
    assert window.diagnosis.isVisible()
    press(Qt.Key.Key_2)
    assert not window.side.isVisible()
    press(Qt.Key.Key_8)
    assert window.side.map.isVisible() and not window.side.isVisible()
    press(Qt.Key.Key_3)
    assert code.isVisible() and not window.side.map.isVisible()
    press(Qt.Key.Key_2)
    assert window.diagnosis.isVisible() and code.isVisible()


def test_a_large_page_is_left_by_its_button_or_escape(qtbot: QtBot, window: Window) -> None:
    page, away = QPushButton("A page"), []
    window.toggle_gallery()
    window.context.show_large(page, "A title", lambda: away.append("first"))
    frame = window.columns.middle.frame
    assert page.isVisible() and frame.title.text() == "A title" and not window.gallery_page.isVisible()
    qtbot.keyClick(page, Qt.Key.Key_Escape)
    assert window.plots.isVisible() and away == ["first"] and window.plots.loss.widget.hasFocus()
    window.context.show_large(page, "A title", lambda: away.append("second"))
    window.columns.show_page("code")
    assert away == ["first", "second"] and not page.isVisible()
    qtbot.mouseClick(frame.back, LEFT)
    assert window.plots.isVisible() and len(away) == 2
    qtbot.keyClick(window, Qt.Key.Key_Escape)  # where nothing large is shown
    assert window.plots.isVisible() and len(away) == 2


def test_space_runs_with_the_focus_in_the_code(qtbot: QtBot, coded: Window) -> None:
    coded.side.code.view.setFocus()
    qtbot.keyClick(coded.side.code.view, Qt.Key.Key_Space)
    qtbot.waitUntil(lambda: coded.simulator.run.over, timeout=LONG)


def test_every_page_has_one_width_which_is_remembered(make_window: Callable[..., Window]) -> None:
    window = make_window()
    window.resize(1440, 900)
    left, middle, right = window.columns.sizes()
    window.columns.setSizes([left, middle - 60, right + 60])
    wide = window.side.width()
    for page in PAGES:
        window.columns.show_page(page)
        assert window.side.width() == wide, page
    window.columns.show_page("runs")
    window.close()
    again = make_window()
    again.resize(1440, 900)
    assert again.side.page == "runs" and again.side.width() == pytest.approx(wide, abs=2)
    assert again.side.map.isVisible()  # the large page, as it was left


def test_every_task_has_a_program(coded: Window) -> None:
    shown = set()
    for task in KNOBS["problem.task"].choices:
        coded.controls.set_knob("problem.task", task)
        coded.refresh()
        compile(coded.side.code.text, "train.py", "exec")
        shown.add(coded.side.code.text)
    assert len(shown) == len(KNOBS["problem.task"].choices)

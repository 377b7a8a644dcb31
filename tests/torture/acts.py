"""What the monkey can do. An act chooses its target now and returns what to do, so that choosing is not measured.

Each is a function of the monkey's `Hand`: the window, the random numbers of this act, the folder for files. It returns a
name and the call, or None where there is nothing to do it to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import TypeVar

import shiboken6
from PySide6.QtCore import QEvent, QMimeData, QPoint, QPointF, Qt, QUrl
from PySide6.QtGui import QAction, QContextMenuEvent, QDropEvent, QKeyEvent, QWheelEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QApplication,
    QComboBox,
    QDialog,
    QFileDialog,
    QHeaderView,
    QLineEdit,
    QMenu,
    QPlainTextEdit,
    QSlider,
    QSpinBox,
    QTextEdit,
    QWidget,
)

from gradstudio.core import presets
from gradstudio.core.experiment import KNOBS
from gradstudio.core.knobs import Knob, KnobError
from gradstudio.gui.shell.pages import PAGES
from gradstudio.gui.window import Window

Act = tuple[str, Callable[[], object]]
Found = TypeVar("Found", bound=QWidget)

LARGEST = {  # of what costs memory and time: the monkey looks for faults of the window, not for large models
    "model.width": 64, "model.depth": 6, "problem.seq_len": 40, "problem.batch_size": 64, "accumulation.steps": 8,
    "problem.skip_batches": 50, "run.steps": 3000,
}  # fmt: skip
TEXTS = (
    "1", "0", "-1", "1e-45", "1e30", "1e308", "nan", "inf", "-inf", "0.5", "1,5", "2147483648", "9223372036854775808",
    "", " ", "norm", "lr", "loss", "a" * 300, "ψ∂∇ 网络 🐵", "<b>bold</b>", "\x1b[31mred", "%s {0} \\n", "kind=norm",
)  # fmt: skip
KEYS = (
    Qt.Key.Key_Tab, Qt.Key.Key_Backtab, Qt.Key.Key_Space, Qt.Key.Key_Return, Qt.Key.Key_Escape, Qt.Key.Key_Left,
    Qt.Key.Key_Right, Qt.Key.Key_Up, Qt.Key.Key_Down, Qt.Key.Key_Home, Qt.Key.Key_End, Qt.Key.Key_PageUp,
    Qt.Key.Key_PageDown, Qt.Key.Key_Delete, Qt.Key.Key_Backspace, Qt.Key.Key_F10, Qt.Key.Key_F2, Qt.Key.Key_Menu,
    Qt.Key.Key_A, Qt.Key.Key_D, Qt.Key.Key_O, Qt.Key.Key_R, Qt.Key.Key_1, Qt.Key.Key_Plus, Qt.Key.Key_Minus,
)  # fmt: skip
MODIFIERS = (Qt.KeyboardModifier.NoModifier,) * 6 + (
    Qt.KeyboardModifier.ControlModifier,
    Qt.KeyboardModifier.ShiftModifier,
    Qt.KeyboardModifier.AltModifier,
)
LEAVING = {"quit"}  # commands that end the session
FILES = ("metrics.csv", "report.html", "train.py", "figure.svg", "figure.png", "ünïcode 🐵.csv", "one more/deep.toml")


@dataclass
class Hand:
    """What an act is given."""

    window: Window
    random: Random
    folder: Path
    files: list[Path]

    def pick(self, several: Sequence[Found]) -> Found | None:
        return self.random.choice(several) if several else None

    @property
    def top(self) -> QWidget:
        """The popup, the modal dialog, or any of the windows: what a person can reach."""
        over = QApplication.activePopupWidget() or QApplication.activeModalWidget()
        if over is not None:
            return over
        others = [each for each in QApplication.topLevelWidgets() if each.isVisible() and each is not self.window]
        return self.random.choice(others) if others and self.random.random() < 0.4 else self.window

    def of(self, kind: type[Found]) -> list[Found]:
        """Return the widgets of a kind that can be reached."""
        top = self.top
        found = [top] if isinstance(top, kind) else []
        return [each for each in (*found, *top.findChildren(kind)) if each.isVisible() and each.isEnabled()]

    def place(self, widget: QWidget) -> QPoint:
        return QPoint(self.random.randrange(max(widget.width(), 1)), self.random.randrange(max(widget.height(), 1)))


def _tap(target: QWidget, key: Qt.Key, keys: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier) -> None:
    """Press and release a key; the press may remove the widget that heard it."""
    QTest.keyPress(target, key, keys)
    if shiboken6.isValid(target):
        QTest.keyRelease(target, key, keys)


def _press(target: QWidget, button: Qt.MouseButton, keys: Qt.KeyboardModifier, place: QPoint) -> None:
    """Press and release a button of the mouse; the press may remove the widget under it."""
    QTest.mousePress(target, button, keys, place)
    if shiboken6.isValid(target):
        QTest.mouseRelease(target, button, keys, place)


# ---- mouse


def press_button(hand: Hand) -> Act | None:
    buttons = [each for each in hand.of(QAbstractButton) if not each.visibleRegion().isEmpty()]
    button = hand.pick(buttons)
    if button is None:
        return None
    return f"press {_name(button)}", partial(
        _press, button, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier, button.rect().center()
    )


def click(hand: Hand) -> Act | None:
    """Click anywhere, as the system reports it."""
    top = hand.top.windowHandle()
    if top is None or not shiboken6.isValid(top):
        return None
    place = QPoint(hand.random.randrange(max(top.width(), 1)), hand.random.randrange(max(top.height(), 1)))
    left, right = Qt.MouseButton.LeftButton, Qt.MouseButton.RightButton
    button = hand.random.choice((left, left, left, right, Qt.MouseButton.MiddleButton))
    keys, twice = hand.random.choice(MODIFIERS), hand.random.random() < 0.15

    def do() -> None:
        QTest.mouseMove(top, place)
        (QTest.mouseDClick if twice else QTest.mouseClick)(top, button, keys, place)

    return f"{'double ' if twice else ''}click {button.name} {keys.name} at {place.x()},{place.y()}", do


def click_widget(hand: Hand) -> Act | None:
    widget = hand.pick(hand.of(QWidget))
    if widget is None:
        return None
    place, keys = hand.place(widget), hand.random.choice(MODIFIERS)
    twice = hand.random.random() < 0.2
    how = QTest.mouseDClick if twice else _press
    return f"{'double ' if twice else ''}click {_name(widget)}", lambda: how(
        widget, Qt.MouseButton.LeftButton, keys, place
    )


def drag(hand: Hand) -> Act | None:
    plots = [each.widget for each in hand.window.plots.plots if each.isVisible()]
    over = hand.top is not hand.window
    widget = hand.pick(hand.of(QWidget)) if over or hand.random.random() < 0.4 else hand.pick(plots)
    if widget is None:
        return None
    places = [hand.place(widget) for _ in range(hand.random.randint(2, 6))]
    button = Qt.MouseButton.RightButton if hand.random.random() < 0.15 else Qt.MouseButton.LeftButton
    keys = hand.random.choice(MODIFIERS)

    def do() -> None:
        QTest.mousePress(widget, button, keys, places[0])
        for place in places[1:]:
            if not shiboken6.isValid(widget):
                return
            QTest.mouseMove(widget, place)
        if shiboken6.isValid(widget):
            QTest.mouseRelease(widget, button, keys, places[-1])

    return f"drag {button.name} {keys.name} over {_name(widget)}", do


def hover(hand: Hand) -> Act | None:
    widget = hand.pick([each.widget for each in hand.window.plots.plots if each.isVisible()])
    if widget is None:
        return None
    place = hand.place(widget)
    return f"hover {_name(widget)}", lambda: QTest.mouseMove(widget, place)


def wheel(hand: Hand) -> Act | None:
    widget = hand.pick(hand.of(QWidget))
    if widget is None:
        return None
    place, keys = hand.place(widget), hand.random.choice(MODIFIERS)
    turned = QPoint(0, hand.random.choice((120, -120, 360, -600)))
    if hand.random.random() < 0.2:
        turned = turned.transposed()

    def do() -> None:
        event = QWheelEvent(
            QPointF(place), QPointF(widget.mapToGlobal(place)), QPoint(), turned, Qt.MouseButton.NoButton, keys,
            Qt.ScrollPhase.NoScrollPhase, False,
        )  # fmt: skip
        QApplication.sendEvent(widget, event)

    return f"wheel {turned.x()},{turned.y()} {keys.name} over {_name(widget)}", do


def open_context_menu(hand: Hand) -> Act | None:
    widget = hand.pick(hand.of(QWidget))
    if widget is None or isinstance(widget, QMenu):
        return None
    place, reason = hand.place(widget), hand.random.choice(list(QContextMenuEvent.Reason))

    def do() -> None:
        QApplication.sendEvent(widget, QContextMenuEvent(reason, place, widget.mapToGlobal(place)))

    return f"context menu of {_name(widget)}", do


def drop_file(hand: Hand) -> Act | None:
    paths = hand.random.sample(hand.files, hand.random.choice((1, 1, 1, 2)))
    if QApplication.activeModalWidget() is not None:
        return None

    def do() -> None:
        data = QMimeData()
        data.setUrls([QUrl.fromLocalFile(str(path)) for path in paths])
        event = QDropEvent(
            QPointF(400, 300), Qt.DropAction.CopyAction, data, Qt.MouseButton.LeftButton,
            Qt.KeyboardModifier.NoModifier,
        )  # fmt: skip
        QApplication.sendEvent(hand.window, event)

    return f"drop {', '.join(path.name for path in paths)}", do


# ---- keys


def press_key(hand: Hand) -> Act | None:
    key, keys = hand.random.choice(KEYS), hand.random.choice(MODIFIERS)
    target = QApplication.activePopupWidget() or QApplication.focusWidget() or hand.top
    if target is None:
        return None
    return f"key {keys.name} {key.name} to {_name(target)}", lambda: _tap(target, key, keys)


def press_shortcut(hand: Hand) -> Act | None:
    commands = [each for each in hand.window.commands.commands.values() if each.keys and each.id not in LEAVING]
    command = hand.random.choice(commands)
    action = next(
        (each for each in hand.window.findChildren(QAction) if each.text().startswith(command.label)), None
    )  # fmt: skip
    if action is None or action.shortcut().isEmpty():
        return None
    combined = action.shortcut()[0]
    target = QApplication.activePopupWidget() or QApplication.activeModalWidget() or hand.window
    return f"shortcut of {command.id}", lambda: _tap(target, combined.key(), combined.keyboardModifiers())


def type_text(hand: Hand) -> Act | None:
    fields = [*hand.of(QLineEdit), *hand.of(QPlainTextEdit), *hand.of(QTextEdit)]
    field = hand.pick([each for each in fields if not each.isReadOnly()])
    if field is None:
        return None
    text, enter, whole = hand.random.choice(TEXTS), hand.random.random() < 0.7, hand.random.random() < 0.8

    def do() -> None:
        field.setFocus()
        if whole:
            field.selectAll()
        for kind in (QEvent.Type.KeyPress, QEvent.Type.KeyRelease):
            if shiboken6.isValid(field):
                QApplication.sendEvent(field, QKeyEvent(kind, 0, Qt.KeyboardModifier.NoModifier, text))
        if enter and shiboken6.isValid(field):
            _tap(field, Qt.Key.Key_Return)

    return f"type {text[:30]!r}{' and Enter' if enter else ''} into {_name(field)}", do


# ---- knobs


def turn_knob(hand: Hand) -> Act | None:
    """Set a knob through its editor, whether its section is open or not."""
    row = hand.random.choice([row for name, row in hand.window.knobs.rows.items() if name != "run.device"])
    knob, parts = row.knob, (row.editor.head, row.editor.foot)
    for part in parts:
        slider = part if isinstance(part, QSlider) else None
        if slider is not None and knob.name not in LARGEST and hand.random.random() < 0.5:
            position = hand.random.randint(0, slider.maximum())
            return f"slide {knob.name} to {position}", partial(slider.setValue, position)
    head = row.editor.head
    if isinstance(head, QComboBox):
        place = hand.random.randrange(head.count())

        def choose() -> None:
            head.setCurrentIndex(place)
            head.activated.emit(place)

        return f"choose {knob.name} = {head.itemText(place)}", choose
    if isinstance(head, QAbstractButton):
        return f"switch {knob.name}", head.click
    if isinstance(head, QLineEdit):
        text = _value(knob, hand.random)

        def enter() -> None:
            head.setText(text)
            head.setModified(True)
            _tap(head, Qt.Key.Key_Return)

        return f"enter {knob.name} = {text}", enter
    buttons = [] if row.editor.foot is None else row.editor.foot.findChildren(QAbstractButton)
    button = hand.pick(buttons)
    return None if button is None else (f"choose {knob.name} = {button.text()}", button.click)


def _value(knob: Knob, random: Random) -> str:
    """Return a text for a knob: a value within its range, one at its ends, or none at all."""
    low, high = max(knob.minimum, -1e30), min(knob.maximum, 1e30)
    if knob.name in LARGEST:
        return str(random.randint(int(low), LARGEST[knob.name])) if random.random() < 0.9 else random.choice(("0", "x"))
    if random.random() < 0.2:
        return random.choice((*TEXTS[:14], repr(low), repr(high), repr(int(high))))
    first, last = knob.slider or (low, min(high, 1e6))
    if knob.kind == "int":
        return str(random.randint(int(first), int(last)))
    return repr(first * (last / first) ** random.random() if first > 0 else first + (last - first) * random.random())


# ---- the program's commands, menus and dialogs


def give_command(hand: Hand) -> Act | None:
    if QApplication.activeModalWidget() is not None:
        return None
    commands = [each for each in hand.window.commands.commands.values() if each.id not in LEAVING]
    command = hand.random.choice(commands)
    return f"command {command.id}", command.call


def open_menu(hand: Hand) -> Act | None:
    if QApplication.activeModalWidget() or QApplication.activePopupWidget():
        return None
    bar = hand.window.menuBar()
    top = hand.window.top
    menus = [each for each in bar.findChildren(QMenu) if each.menuAction() in bar.actions()]
    menus += [button.menu() for button in (top.preset, hand.window.knobs.device, top.export)]
    menu = hand.random.choice(menus)
    return f"open menu {menu.title() or _name(menu.parentWidget())}", lambda: menu.popup(QPoint(300, 100))


def choose_from_menu(hand: Hand) -> Act | None:
    menu = QApplication.activePopupWidget()
    if not isinstance(menu, QMenu):
        return None
    actions = [each for each in menu.actions() if each.isEnabled() and not each.isSeparator()]
    actions = [each for each in actions if "Quit" not in each.text()]
    if not actions:
        return None
    action = hand.random.choice(actions)
    place = menu.actionGeometry(action).center()

    def do() -> None:
        QTest.mouseMove(menu, place)
        _press(menu, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier, place)

    return f"choose “{action.text()}”", do


def use_dialog(hand: Hand) -> Act | None:
    """Answer a dialog, in one of the ways in which a person does."""
    dialog = QApplication.activeModalWidget()
    if QApplication.activePopupWidget() is not None:  # it would have to be closed first
        return None
    if isinstance(dialog, QFileDialog):
        return _use_file_dialog(hand, dialog)
    if not isinstance(dialog, QDialog):
        return None
    for field in (*dialog.findChildren(QSpinBox), *dialog.findChildren(QComboBox)):
        if isinstance(field, QSpinBox) and hand.random.random() < 0.5:
            field.setValue(hand.random.randint(field.minimum(), min(field.maximum(), 400)))
        elif isinstance(field, QComboBox) and field.count() and hand.random.random() < 0.5:
            field.setCurrentIndex(hand.random.randrange(field.count()))
    how = hand.random.choice((dialog.accept, dialog.accept, dialog.reject, dialog.close))
    return f"{how.__name__} {_name(dialog)}", how


def _use_file_dialog(hand: Hand, dialog: QFileDialog) -> Act:
    if hand.random.random() < 0.3:
        return f"reject {_name(dialog)}", dialog.reject
    if dialog.fileMode() == QFileDialog.FileMode.Directory:
        path = hand.folder
    elif dialog.acceptMode() == QFileDialog.AcceptMode.AcceptSave:
        path = hand.folder / hand.random.choice(FILES)
    else:
        path = hand.random.choice(hand.files)

    def do() -> None:
        dialog.setDirectory(str(hand.folder))
        for field in dialog.findChildren(QLineEdit):
            if field.objectName() == "fileNameEdit":
                field.setText(str(path))
        dialog.accept()

    return f"choose {path.name} in {_name(dialog)}", do


def close_something(hand: Hand) -> Act | None:
    over = QApplication.activePopupWidget() or QApplication.activeModalWidget()
    others = [each for each in QApplication.topLevelWidgets() if each.isVisible() and each is not hand.window]
    target = over or hand.pick(others)
    return None if target is None else (f"close {_name(target)}", target.close)


# ---- runs


def rewind(hand: Hand) -> Act | None:
    steps = len(hand.window.simulator.run.history)
    step = hand.random.randint(0, max(steps, 1))
    return f"rewind to {step}", lambda: hand.window.controls.rewind(step)


def load_preset(hand: Hand) -> Act | None:
    """Load one of the small presets, or the small one itself, and run it."""
    from torture.stage import small_preset

    controls, play = hand.window.controls, hand.random.random() < 0.7
    source = hand.random.choice((None, None, "gan-ring", "pole-collapse", "log-of-zero", "fp16-underflow"))

    def do() -> None:
        controls.load(small_preset() if source is None else presets.load(source))
        if play:
            hand.window.simulator.play()

    return f"load {source or 'small'}{' and run' if play else ''}", do


def break_run(hand: Hand) -> Act | None:
    """Make the run diverge, so that there is something to diagnose and to fix."""
    controls = hand.window.controls
    return "break the run", lambda: (controls.set_knob("optimizer.lr", 1e6), hand.window.simulator.play())


def start_twins(hand: Hand) -> Act | None:
    name = hand.random.choice(("optimizer.lr", "run.seed", "clipping.kind", "model.activation", "optimizer.momentum"))
    knob = KNOBS[name]
    if knob.choices:
        value = hand.random.choice(knob.choices)
    else:
        value = hand.random.randint(0, 9) if knob.kind == "int" else round(hand.random.random(), 3)

    def do() -> None:
        with suppress(KnobError):  # the dialog shows it
            hand.window.controls.start_twins(name, value)

    return f"twins {name} = {value}", do


def try_fixes(hand: Hand) -> Act | None:
    return "try fixes", hand.window.fixes.begin


def use_row(hand: Hand) -> Act | None:
    """Click or tick a row of a list: runs, branches, completions, files."""
    view = hand.pick([each for each in hand.of(QAbstractItemView) if not isinstance(each, QHeaderView)])
    if view is None or view.model() is None or not view.model().rowCount(view.rootIndex()):
        return None
    row = hand.random.randrange(view.model().rowCount(view.rootIndex()))
    index = view.model().index(row, 0, view.rootIndex())
    keys, twice, share = hand.random.choice(MODIFIERS), hand.random.random() < 0.3, hand.random.random()

    def do() -> None:
        view.scrollTo(index)
        box = view.visualRect(index)
        place = QPoint(box.left() + round(share * max(box.width() - 1, 0)), box.center().y())
        how = QTest.mouseDClick if twice else _press
        how(view.viewport(), Qt.MouseButton.LeftButton, keys, place)

    return f"{'open' if twice else 'choose'} row {row} of {_name(view)}", do


# ---- the window itself


def resize(hand: Hand) -> Act | None:
    width, height = hand.random.randint(900, 2200), hand.random.randint(500, 1300)
    return f"resize to {width} x {height}", lambda: hand.window.resize(width, height)


def show_page(hand: Hand) -> Act | None:
    page = hand.random.choice(list(PAGES))
    return f"page {page}", hand.window.commands.commands[f"page_{page}"].call


def change_look(hand: Hand) -> Act | None:
    from gradstudio.gui.theme import theme

    if hand.random.random() < 0.5:
        zoom = round(hand.random.uniform(0.7, 1.6), 2)
        return f"text {zoom}", lambda: theme.set_zoom(zoom)
    mode = hand.random.choice(("light", "dark", "system"))
    return f"theme {mode}", lambda: theme.set_mode(mode)


def set_speed(hand: Hand) -> Act | None:
    position = hand.random.randint(0, hand.window.top.speed.maximum())
    return f"speed {position}", lambda: hand.window.top.speed.setValue(position)


def minimize(hand: Hand) -> Act | None:
    def do() -> None:
        hand.window.showMinimized()
        hand.window.showNormal()

    return "minimize and show", do


def look(hand: Hand) -> Act | None:
    return "look", lambda: None


ACTS: dict[Callable[[Hand], Act | None], int] = {
    press_button: 16, click: 14, click_widget: 8, drag: 12, hover: 8, wheel: 10, open_context_menu: 6, drop_file: 1,
    press_key: 14, press_shortcut: 10, type_text: 10, turn_knob: 24, give_command: 10, open_menu: 5,
    choose_from_menu: 8, use_dialog: 10, close_something: 8, rewind: 4, load_preset: 3, break_run: 3, start_twins: 2,
    try_fixes: 3, use_row: 6, resize: 2, show_page: 5, change_look: 2, set_speed: 2, minimize: 1, look: 6,
}  # fmt: skip  # how often each is done, relative to the others


def _name(widget: QWidget | None) -> str:
    """Return what tells a widget from others: class, object name, text or accessible name."""
    if widget is None or not shiboken6.isValid(widget):
        return "nothing"
    text = widget.text() if isinstance(widget, QAbstractButton) else widget.windowTitle() or widget.accessibleName()
    return " ".join(
        part for part in (type(widget).__name__, widget.objectName(), repr(text[:40]) if text else "") if part
    )

"""The tour of the window in four steps: what is where, in the order of need. It can be left at any step, and restarted
from the Help menu and the palette."""

from __future__ import annotations

from typing import NamedTuple

from PySide6.QtCore import QPoint, QRect, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QLabel, QPushButton, QWidget

from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.popups import TemporaryDialog
from gradstudio.gui.widgets.roles import role_label
from gradstudio.gui.widgets.rows import in_column, in_row

WIDTH = 380  # px of the dialog
LINE = 3  # px of the frame around the part of a step
GAP = 16  # px between that part and the dialog


class Stop(NamedTuple):
    """One step of the tour: its title and text, and its part of the window."""

    title: str
    text: str
    part: QWidget


class _Outline(QWidget):
    """A frame around a part of the window, which lets every click through."""

    def __init__(self, over: QWidget) -> None:
        super().__init__(over)
        self.setObjectName("tour outline")
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)

    def paintEvent(self, event: QPaintEvent) -> None:
        with QPainter(self) as painter:
            painter.setPen(QPen(theme.color("accent"), LINE))
            inset = LINE // 2 + 1
            painter.drawRect(self.rect().adjusted(inset, inset, -inset, -inset))


def begin(window: QWidget, knobs: QWidget, top: QWidget, plots: QWidget, side: QWidget) -> None:
    """Begin the tour of a window, whose parts are visible."""
    stops = (
        Stop("Knobs", "Everything that training depends on is a knob. Point at one to read what it does, and "
             "whether it takes effect at the next step or on restart.", knobs),
        Stop("Run", "Space or Run starts the training, and pauses it. Step makes one optimizer step. Restart begins "
             "again from step 0 with the knobs as they are set.", top),
        Stop("Plots", "Each curve is measured while a real model trains. Click a plot to rewind to that step; turn the "
             "wheel to look closer. A red line marks the first step that is not finite.", plots),
        Stop("Diagnosis", "When training goes wrong, this page says what was measured, what it means, and which change "
             "of a knob should help. Below it stands the lesson of the preset.", side),
    )  # fmt: skip
    TourDialog(window, stops).show()


class TourDialog(TemporaryDialog):
    """Shows one step at a time. The window can be used meanwhile."""

    def __init__(self, window: QWidget, stops: tuple[Stop, ...]) -> None:
        super().__init__(window, "Tour")
        self._stops, self._window, self.at = stops, window, 0
        self.title, self.text, self.count = role_label("", "title"), QLabel(), role_label("", "dim")
        self.text.setWordWrap(True)
        self.skip, self.before, self.after = QPushButton("Skip tour"), QPushButton("Back"), QPushButton("Next")
        self.skip.setToolTip("Ends the tour; the Help menu begins it again")
        self.before.setToolTip("Shows the step before")
        self.after.setDefault(True)
        self.outline = _Outline(window)
        buttons = in_row(self.skip, 1, self.count, self.before, self.after)
        in_column(self.title, self.text, buttons, of=self, margins=(16, 14, 16, 12), spacing=10)
        self.setFixedWidth(WIDTH)
        self.skip.clicked.connect(self.reject)
        self.before.clicked.connect(self._go_back)
        self.after.clicked.connect(self._go_on)
        self.finished.connect(self.outline.deleteLater)
        self.show_step(0)
        self.after.setFocus()

    def show_step(self, at: int) -> None:
        """Show a step, and its part of the window."""
        self.at, last = at, at == len(self._stops) - 1
        stop = self._stops[at]
        self.title.setText(stop.title)
        self.text.setText(stop.text)
        self.count.setText(f"{at + 1} of {len(self._stops)}")
        self.before.setEnabled(at > 0)
        self.skip.setVisible(not last)
        self.after.setText("Close" if last else "Next")
        self.after.setToolTip("Ends the tour" if last else f"Shows the next step: {self._stops[at + 1].title}")
        self.setAccessibleName(f"{stop.title}. {stop.text}")
        part = stop.part
        around = QRect(part.mapTo(self._window, QPoint()), part.size())
        self.outline.setGeometry(around)
        self.outline.show()
        self.outline.raise_()
        self.adjustSize()
        self.move(self._window.mapToGlobal(self._beside(around)))

    def _beside(self, around: QRect) -> QPoint:
        """Return a position beside a part if there is room, or else inside it, at its foot."""
        room, size = self._window.rect(), self.size()
        top = min(around.top() + GAP, room.bottom() - size.height() - GAP)
        if around.right() + GAP + size.width() < room.right():
            return QPoint(around.right() + GAP, top)
        if around.left() - GAP - size.width() > 0:
            return QPoint(around.left() - GAP - size.width(), top)
        below = around.bottom() + GAP
        fits = below + size.height() < room.bottom()
        return QPoint(around.center().x() - size.width() // 2, below if fits else around.bottom() - size.height() - GAP)

    def _go_back(self) -> None:
        self.show_step(max(self.at - 1, 0))

    def _go_on(self) -> None:
        self.accept() if self.at == len(self._stops) - 1 else self.show_step(self.at + 1)

"""A formula, drawn in the theme's colours. Its outline is made in a thread, because matplotlib takes long to load."""

from __future__ import annotations

import queue
import threading
from collections import deque

from PySide6.QtCore import QObject, QSize, QTimer, Signal
from PySide6.QtGui import QPainter, QPainterPath, QPaintEvent, QTransform
from PySide6.QtWidgets import QSizePolicy, QWidget

from gradstudio.gui.theme import POINTS, theme
from gradstudio.session.course import formula
from gradstudio.session.course.formula import Outline

FIRST = 1500  # ms until the first outline is begun: a window that opens has the machine for itself
POLL = 50  # ms between two looks for an outline while one is awaited
SIZE = POINTS / 100 * 96 / 72 * 1.15  # px of a unit of an outline at normal text
ROOM = 4  # px above and below


class FormulaThread(QObject):
    """Makes outlines, one after the other, and keeps them. Only the GUI thread calls it."""

    made = Signal(str)  # a formula whose outline is there

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self.paths: dict[str, QPainterPath] = {}  # an empty one where the formula cannot be read
        self._asked: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._answers: deque[tuple[str, Outline | None]] = deque()
        self._awaited: set[str] = set()
        self._thread: threading.Thread | None = None
        self._first = QTimer(self)
        self._first.setSingleShot(True)
        self._first.timeout.connect(self._begin)
        self._timer = QTimer(self)
        self._timer.setInterval(POLL)
        self._timer.timeout.connect(self._hand_over)

    @property
    def busy(self) -> bool:
        """Whether an outline is awaited."""
        return bool(self._awaited)

    def ask(self, text: str) -> None:
        """Make the outline of a formula, unless it is there."""
        if text in self.paths or text in self._awaited:
            return
        self._awaited.add(text)
        self._asked.put(text)
        self._timer.start()
        if self._thread is None:
            self._first.start(FIRST)
        elif not self._thread.is_alive():
            self._begin()

    def _begin(self) -> None:
        self._thread = threading.Thread(
            target=_draw, args=(self._asked, self._answers), name="drawing formulas", daemon=True
        )
        self._thread.start()

    def _hand_over(self) -> None:
        while self._answers:
            text, found = self._answers.popleft()
            self._awaited.discard(text)
            self.paths[text] = QPainterPath() if found is None else _path(found)
            self.made.emit(text)
        if not self._awaited:
            self._timer.stop()
        elif self._thread is not None and not self._thread.is_alive():  # it ended just as something was asked
            waiting, self._awaited = self._awaited, set()
            for text in waiting:
                self.ask(text)


def _draw(asked: queue.SimpleQueue[str], answers: deque[tuple[str, Outline | None]]) -> None:
    """Make what is asked, and end."""
    while not asked.empty():
        text = asked.get()
        try:
            answers.append((text, formula.outline(text)))
        except ValueError:
            answers.append((text, None))


def _path(found: Outline) -> QPainterPath:
    """Return an outline as Qt draws it, with y downwards and its top left corner at 0, 0."""
    path, rows = QPainterPath(), [(x, -y) for x, y in found.points.tolist()]
    place = 0
    while place < len(rows):
        code, at = int(found.codes[place]), rows[place]
        if code == 1:
            path.moveTo(*at)
        elif code == 2:
            path.lineTo(*at)
        elif code == 3:
            path.quadTo(*at, *rows[place + 1])
        elif code == 4:
            path.cubicTo(*at, *rows[place + 1], *rows[place + 2])
        else:
            path.closeSubpath()
        place += {3: 2, 4: 3}.get(code, 1)
    box = path.boundingRect()
    return QTransform.fromTranslate(-box.x(), -box.y()).map(path)


class FormulaPicture(QWidget):
    """One formula on a line. Until its outline is there, and where it cannot be read, it shows nothing."""

    def __init__(self, text: str, thread: FormulaThread) -> None:
        super().__init__()
        self._text, self._thread = text, thread
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(f"Formula: {text}")
        self.setToolTip(text)
        thread.made.connect(self._show)
        theme.changed.connect(self.updateGeometry)
        thread.ask(text)

    @property
    def path(self) -> QPainterPath:
        return self._thread.paths.get(self._text, QPainterPath())

    def sizeHint(self) -> QSize:
        box = self.path.boundingRect()
        scale = SIZE * theme.zoom
        high = round(box.height() * scale) + 2 * ROOM if not self.path.isEmpty() else 0
        return QSize(round(box.width() * scale) + 2, high)

    def paintEvent(self, event: QPaintEvent) -> None:
        path = self.path
        if path.isEmpty():
            return
        wide = path.boundingRect().width()
        scale = min(SIZE * theme.zoom, (self.width() - 2) / wide)  # smaller, where there is no room
        with QPainter(self) as painter:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.translate(1, ROOM)
            painter.scale(scale, scale)
            painter.fillPath(path, theme.color("text"))

    def _show(self, text: str) -> None:
        if text == self._text:
            self.updateGeometry()
            self.update()

"""A formula, drawn in the theme's colours. Its outline is computed in a job of the window, because matplotlib takes
long to load."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import QObject, QSize, QTimer, Signal
from PySide6.QtGui import QPainter, QPainterPath, QPaintEvent, QTransform
from PySide6.QtWidgets import QSizePolicy, QWidget

from gradstudio.gui.services.jobs import Jobs, Task
from gradstudio.gui.theme import POINTS, theme
from gradstudio.session.course import formula
from gradstudio.session.course.formula import Outline

FIRST = 1500  # ms until the first outline is started: a window that opens has the machine for itself
SIZE = POINTS / 100 * 96 / 72 * 1.15  # px of a unit of an outline at normal text
ROOM = 4  # px above and below


class Formulas(QObject):
    """Computes outlines, one after the other, and caches them."""

    made = Signal(str)  # a formula whose outline is available

    def __init__(self, jobs: Jobs, parent: QObject) -> None:
        super().__init__(parent)
        self.paths: dict[str, QPainterPath] = {}  # an empty one if the formula cannot be parsed
        self._jobs = jobs
        self._waiting: list[str] | None = []  # until the first is started
        self._asked = set[str]()

    @property
    def is_complete(self) -> bool:
        """Whether no outline is pending."""
        return self.paths.keys() >= self._asked

    def ask(self, text: str) -> None:
        """Compute the outline of a formula, unless it is cached."""
        if text in self._asked:
            return
        self._asked.add(text)
        if self._waiting is None:
            self._jobs.start("", partial(_outline, text), partial(self._take, text), queue="drawing formulas")
            return
        if not self._waiting:
            QTimer.singleShot(FIRST, self, self._begin)
        self._waiting.append(text)

    def _begin(self) -> None:
        waiting, self._waiting, self._asked = self._waiting or [], None, set()
        for text in waiting:
            self.ask(text)

    def _take(self, text: str, outline: Outline | None) -> None:
        self.paths[text] = QPainterPath() if outline is None else _path(outline)
        self.made.emit(text)


def _outline(text: str, _: Task) -> Outline | None:
    try:
        return formula.outline(text)
    except ValueError:
        return None


def _path(outline: Outline) -> QPainterPath:
    """Return an outline as a Qt path, with y downwards and its top left corner at 0, 0."""
    path, rows = QPainterPath(), [(x, -y) for x, y in outline.points.tolist()]
    place = 0
    while place < len(rows):
        code, at = int(outline.codes[place]), rows[place]
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
    """One formula on a line. Empty until its outline is available, and if it cannot be parsed."""

    def __init__(self, text: str, formulas: Formulas) -> None:
        super().__init__()
        self._text, self._formulas = text, formulas
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(f"Formula: {text}")
        self.setToolTip(text)
        formulas.made.connect(self._show)
        theme.changed.connect(self.updateGeometry)
        formulas.ask(text)

    @property
    def path(self) -> QPainterPath:
        return self._formulas.paths.get(self._text, QPainterPath())

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
        scale = min(SIZE * theme.zoom, (self.width() - 2) / wide)  # smaller, if there is no room
        with QPainter(self) as painter:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.translate(1, ROOM)
            painter.scale(scale, scale)
            painter.fillPath(path, theme.color("text"))

    def _show(self, text: str) -> None:
        if text == self._text:
            self.updateGeometry()
            self.update()

"""A card of the gallery: the loss of a preset's run, its title, what it shows, its level and time."""

from __future__ import annotations

import math
from html import escape

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QEnterEvent, QFont, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QAbstractButton, QSizePolicy, QWidget

from gradstudio.core import gallery
from gradstudio.core.gallery import Curve, Picture
from gradstudio.core.presets import Preset
from gradstudio.gui.theme import theme

SIZE = QSize(236, 158)  # px at normal text
PICTURE = 56  # px of the height
MARGIN = 11
WIDE = 30.0  # largest over smallest loss from which on the picture is logarithmic


class GalleryCard(QAbstractButton):
    """One preset, to open with a click or Enter."""

    def __init__(self, parent: QWidget, preset: Preset) -> None:
        super().__init__(parent)
        self.preset = preset
        self.picture = gallery.picture(preset)
        self.minutes = gallery.minutes(preset)
        self.searched = " ".join(
            (
                preset.id,
                preset.title,
                preset.summary,
                preset.group,
                preset.level,
                *(step.text for step in preset.lesson),
            )
        ).casefold()
        self.finished = False
        self.missing: list[str] = []  # titles of the presets to take first that are not finished
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self.setToolTip(f"<qt>{escape(preset.summary)}</qt>")  # rich text is broken into lines
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)
        self.tell(finished=False, missing=[])

    def sizeHint(self) -> QSize:
        return SIZE * theme.zoom

    def tell(self, *, finished: bool, missing: list[str]) -> None:
        """Say whether the lesson is finished, and which lessons come before it."""
        self.finished, self.missing = finished, missing
        self.setAccessibleName(f"{self.preset.title}. {', '.join(self.facts)}. {self.preset.summary}")
        self.update()

    @property
    def facts(self) -> list[str]:
        """Level, time, and what a person has done of it."""
        told = [self.preset.level.capitalize()] if self.preset.level else []
        if self.preset.lesson:
            told.append(f"about {self.minutes} min")
        if self.finished:
            told.append("finished")
        elif self.missing:
            told.append(f"after {', '.join(self.missing)}")
        return told

    def enterEvent(self, event: QEnterEvent) -> None:
        super().enterEvent(event)
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        chosen = self.hasFocus() or self.underMouse()
        with QPainter(self) as painter:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(QPen(theme.color("accent" if chosen else "line"), 1.5 if self.hasFocus() else 1))
            painter.setBrush(theme.color("panel"))
            painter.drawRoundedRect(QRectF(self.rect()).adjusted(1, 1, -1, -1), 7, 7)
            inside = QRectF(self.rect()).adjusted(MARGIN, MARGIN - 2, -MARGIN, -MARGIN + 2)
            picture = QRectF(inside.x(), inside.y(), inside.width(), PICTURE * theme.zoom)
            paint_picture(painter, picture, self.picture, healed=self.finished)
            self._write(painter, inside, picture.bottom() + 5)

    def _write(self, painter: QPainter, inside: QRectF, top: float) -> None:
        painter.setFont(theme.font(1.0, QFont.Weight.DemiBold))
        metrics = painter.fontMetrics()
        painter.setPen(theme.color("text"))
        title = metrics.elidedText(self.preset.title, Qt.TextElideMode.ElideRight, int(inside.width()))
        painter.drawText(QRectF(inside.x(), top, inside.width(), metrics.height()), title)
        top += metrics.height() + 1
        painter.setFont(theme.font(0.85))
        metrics = painter.fontMetrics()
        foot = inside.bottom() - metrics.height()
        painter.setPen(theme.color("dim"))
        lines = int((foot - 2 - top) // metrics.height())
        for line in _lines(painter, self.preset.summary, inside.width(), max(lines, 1)):
            painter.drawText(QRectF(inside.x(), top, inside.width(), metrics.height()), line)
            top += metrics.height()
        facts = self.facts
        below = QRectF(inside.x(), foot, inside.width(), metrics.height())
        if self.finished:
            done = "✓ finished"
            painter.setPen(theme.color("good"))
            painter.drawText(below, Qt.AlignmentFlag.AlignRight, done)
            facts.remove("finished")
            below.setWidth(below.width() - metrics.horizontalAdvance(done) - 6)
        painter.setPen(theme.color("dim"))
        told = metrics.elidedText(" · ".join(facts), Qt.TextElideMode.ElideRight, int(below.width()))
        painter.drawText(below, Qt.AlignmentFlag.AlignLeft, told)


def paint_picture(painter: QPainter, place: QRectF, picture: Picture | None, *, healed: bool) -> None:
    """Draw the loss of a preset's run, and of the run with its fix where that is no secret any more."""
    painter.setPen(QPen(theme.color("grid"), 1))
    painter.drawLine(place.bottomLeft(), place.bottomRight())
    if picture is None:
        return
    curves = [picture.broken, *([picture.healed] if healed and picture.healed else [])]
    losses = [loss for curve in curves for loss in curve.loss if loss is not None]
    if not losses:
        painter.setFont(theme.font(0.85))
        painter.setPen(theme.color("bad"))
        painter.drawText(place, Qt.AlignmentFlag.AlignCenter, "ends with an error" if picture.broken.status == "failed"
                         else "diverges at the first step")  # fmt: skip
        return
    low, high = min(losses), max(losses)
    logarithmic = low > 0 and high > WIDE * low
    if logarithmic:
        low, high = math.log(low), math.log(high)
    span = (high - low) or 1.0
    for curve, role in zip(curves, ("accent", "good"), strict=False):
        points = []
        for part, loss in enumerate(curve.loss):
            if loss is not None:
                level = ((math.log(loss) if logarithmic else loss) - low) / span
                across = place.x() + (place.width() - 12) * (part + 0.5) / gallery.POINTS
                points.append(QPointF(across, place.bottom() - 3 - level * (place.height() - 8)))
        style = Qt.PenStyle.SolidLine if curve is picture.broken else Qt.PenStyle.DashLine
        painter.setPen(QPen(theme.color(role), 1.6, style))
        painter.drawPolyline(points)
        if _diverges(curve):
            _cross(painter, points[-1])


def _diverges(curve: Curve) -> bool:
    return curve.status == "nonfinite"


def _cross(painter: QPainter, at: QPointF) -> None:
    painter.setPen(QPen(theme.color("bad"), 1.8))
    for slope in (1, -1):
        painter.drawLine(at + QPointF(2, -4 * slope), at + QPointF(10, 4 * slope))


def _lines(painter: QPainter, text: str, width: float, count: int) -> list[str]:
    """Return a text in at most so many lines of a width; the last one is elided."""
    metrics, lines, words = painter.fontMetrics(), [], text.split()
    while words and len(lines) < count:
        if len(lines) == count - 1:
            lines.append(metrics.elidedText(" ".join(words), Qt.TextElideMode.ElideRight, int(width)))
            break
        line = words.pop(0)
        while words and metrics.horizontalAdvance(f"{line} {words[0]}") <= width:
            line += f" {words.pop(0)}"
        lines.append(line)
    return lines

"""A card of the gallery: the loss of a preset's run, its title, its topic, its level and duration. How the run goes is
hidden until the lesson that asks about it is finished."""

from __future__ import annotations

import math

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QFont, QPainter, QPen
from PySide6.QtWidgets import QWidget

from gradstudio.core import gallery
from gradstudio.core.gallery import Curve, Picture
from gradstudio.core.presets import Preset
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.card import DONE, Card

WIDE = 30.0  # largest over smallest loss from which on the picture is logarithmic
BEGINNING = gallery.POINTS // 3  # points of the curve that are not hidden


class GalleryCard(Card):
    """One preset."""

    picture_height = 56

    def __init__(self, parent: QWidget, preset: Preset) -> None:
        super().__init__(parent, preset.title)
        self.preset = preset
        self.picture = gallery.picture(preset)
        self.minutes = gallery.minutes(preset)
        lesson = (step.text for step in preset.lesson)
        self.named = f"{preset.id} {preset.title}".casefold()
        self.described = f"{self.named} {preset.summary.casefold()}"
        self.searched = " ".join((self.described, preset.group, preset.level, *lesson)).casefold()
        self.finished = False
        self.show_state(finished=False, missing=[])

    def show_state(self, *, finished: bool, missing: list[str]) -> None:
        """Show whether the lesson is finished, and the titles of its prerequisites."""
        self.finished, preset = finished, self.preset
        facts = [preset.level.capitalize()] if preset.level else []
        if preset.lesson:
            facts.append(f"about {self.minutes} min")
        if finished:
            facts.append(DONE)
        elif missing:
            facts.append(f"after {', '.join(missing)}")
        self.tell(preset.setting if self.secret else preset.summary, facts)

    @property
    def secret(self) -> bool:
        """Whether a question about how the run goes is still open."""
        return not self.finished and any(step.predict for step in self.preset.lesson)

    def paint_picture(self, painter: QPainter, place: QRectF) -> None:
        painter.setPen(QPen(theme.color("grid"), 1))
        painter.drawLine(place.bottomLeft(), place.bottomRight())
        if self.picture is not None:
            _paint_loss(painter, place, self.picture, secret=self.secret, healed=self.finished)


def _paint_loss(painter: QPainter, place: QRectF, picture: Picture, *, secret: bool, healed: bool) -> None:
    """Draw the loss of a preset's run, or only its beginning, and that of the run with its fix."""
    shown = [picture.broken.loss[:BEGINNING] if secret else picture.broken.loss]
    if healed and picture.healed:
        shown.append(picture.healed.loss)
    losses = [loss for curve in shown for loss in curve if loss is not None]
    if secret:
        rest = place.adjusted(place.width() * BEGINNING / gallery.POINTS, 0, 0, 0)
        painter.setFont(theme.font(1.5, QFont.Weight.DemiBold))
        painter.setPen(theme.color("line"))
        painter.drawText(rest, Qt.AlignmentFlag.AlignCenter, "?")
    elif not losses:
        painter.setFont(theme.font(0.85))
        painter.setPen(theme.color("bad"))
        failed = picture.broken.status == "failed"
        told = "ends with an error" if failed else "diverges at the first step"
        painter.drawText(place, Qt.AlignmentFlag.AlignCenter, told)
    if not losses:
        return
    low, high = min(losses), max(losses)
    logarithmic = low > 0 and high > WIDE * low
    if logarithmic:
        low, high = math.log(low), math.log(high)
    span = (high - low) or 1.0
    for curve, role in zip(shown, ("accent", "good"), strict=False):
        points = []
        for part, loss in enumerate(curve):
            if loss is not None:
                level = ((math.log(loss) if logarithmic else loss) - low) / span
                across = place.x() + (place.width() - 12) * (part + 0.5) / gallery.POINTS
                points.append(QPointF(across, place.bottom() - 3 - level * (place.height() - 8)))
        style = Qt.PenStyle.SolidLine if role == "accent" else Qt.PenStyle.DashLine
        painter.setPen(QPen(theme.color(role), 1.6, style))
        painter.drawPolyline(points)
        if not secret and _diverges(picture.broken if role == "accent" else picture.healed):
            _cross(painter, points[-1])


def _diverges(curve: Curve | None) -> bool:
    return curve is not None and curve.status == "nonfinite"


def _cross(painter: QPainter, at: QPointF) -> None:
    painter.setPen(QPen(theme.color("bad"), 1.8))
    for slope in (1, -1):
        painter.drawLine(at + QPointF(2, -4 * slope), at + QPointF(10, 4 * slope))

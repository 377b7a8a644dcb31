"""The two pictures of the page Memory: a bar for each part, and the curve over one step."""

from __future__ import annotations

import math

import numpy as np
from PySide6.QtCore import QEvent, QPointF, QRectF, Qt
from PySide6.QtGui import QHelpEvent, QPainter, QPainterPath, QPen
from PySide6.QtWidgets import QToolTip

from gradstudio.core.footprint import MB, PARTS, PHASES, Footprint
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.picture import Picture
from gradstudio.session.footprint import texts

FAINT = 0.35  # opacity of an outdated picture
PALE = 70  # opacity, of 255, for the maximum of a part at other times
GAP = 8.0  # px between name, bar and number
ROW = 19  # px
TALL = 4.0  # a budget this many times the peak is written, not drawn
HEAD = 1.12  # height of the curve's picture, times its highest value


class FootprintPicture(Picture):
    """A picture of a footprint."""

    def __init__(self, name: str, height: int) -> None:
        self._shown: Footprint | None = None
        self._budget, self._faint = 0, False
        super().__init__(name, height)

    def show_of(self, footprint: Footprint, budget: int, *, faint: bool) -> None:
        """Show a footprint with a budget in MB, 0 for none. `faint`: it is for other knobs than the current ones."""
        if (footprint, budget, faint) != (self._shown, self._budget, self._faint):
            self._shown, self._budget, self._faint = footprint, budget, faint
            self.draw()

    def paint(self, painter: QPainter, width: float, height: float) -> None:
        if self._shown is not None:
            painter.setOpacity(FAINT if self._faint else 1.0)
            self.paint_of(self._shown, painter, width, height)

    def paint_of(self, shown: Footprint, painter: QPainter, width: float, height: float) -> None:
        """Draw the footprint into this many pixels."""
        raise NotImplementedError


class PartBars(FootprintPicture):
    """A bar for each part: solid at the peak, and pale up to the maximum of the part during the step."""

    def __init__(self) -> None:
        super().__init__("What takes the memory", ROW * len(PARTS))

    def show_of(self, footprint: Footprint, budget: int, *, faint: bool) -> None:
        super().show_of(footprint, budget, faint=faint)
        told = [
            f"{texts.PARTS[part]}: {texts.size(footprint.at_peak[part])}, at most {texts.size(footprint.sizes[part])}"
            for part in PARTS
        ]
        self.setToolTip("At the peak (solid), and at most during the step (pale):\n" + "\n".join(told))
        self.setAccessibleDescription("; ".join(told))

    def paint_of(self, shown: Footprint, painter: QPainter, width: float, height: float) -> None:
        painter.setFont(theme.font(0.88))
        metrics, row = painter.fontMetrics(), height / len(PARTS)
        numbers = [texts.size(shown.at_peak[part]) for part in PARTS]
        left = max(metrics.horizontalAdvance(texts.PARTS[part]) for part in PARTS) + GAP
        right = width - max(map(metrics.horizontalAdvance, numbers)) - GAP
        longest = max(*shown.sizes.values(), *shown.at_peak.values(), 1)
        for index, (part, number) in enumerate(zip(PARTS, numbers, strict=True)):
            line = QRectF(0, index * row, width, row)
            painter.setPen(theme.color("text"))
            painter.drawText(line, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, texts.PARTS[part])
            painter.drawText(line, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, number)
            room = QRectF(left, index * row + 4, max(right - left, 0.0), row - 8)
            painter.fillRect(room, theme.color("grid"))
            for taken, opacity in ((shown.sizes[part], PALE), (shown.at_peak[part], 255)):
                room.setWidth(max(right - left, 0.0) * taken / longest)
                painter.fillRect(room, theme.color("accent", opacity))


class StepCurve(FootprintPicture):
    """The bytes in use after each operation of one step, all operations equally wide, with the phases below and the
    budget as a line."""

    def __init__(self) -> None:
        self._left = 0.0  # px, where the curve begins
        super().__init__("Memory over one step", 170)

    def show_of(self, footprint: Footprint, budget: int, *, faint: bool) -> None:
        super().show_of(footprint, budget, faint=faint)
        between = f"{texts.size(footprint.before)} are taken between two steps"
        self.setAccessibleDescription(f"{texts.peak_text(footprint)}; {between}")

    def at(self, x: float) -> str:
        """Return the usage at a pixel: '12.6 MB in the forward pass, operation addmm'; "" outside of the curve."""
        footprint = self._shown
        if footprint is None or not self._left <= x < self.width():
            return ""
        index = int((x - self._left) / (self.width() - self._left) * len(footprint.curve))
        where = texts.place(PHASES[footprint.phases[index]], footprint.names[footprint.operations[index]])
        return f"{texts.size(footprint.curve[index])} {where}"

    def event(self, event: QEvent) -> bool:
        if isinstance(event, QHelpEvent) and event.type() == QEvent.Type.ToolTip:
            QToolTip.showText(event.globalPos(), self.at(event.pos().x()), self)
            return True
        return super().event(event)

    def paint_of(self, shown: Footprint, painter: QPainter, width: float, height: float) -> None:
        line = painter.fontMetrics().height()
        limit = self._budget * MB
        drawn = 0 < limit <= TALL * shown.peak
        highest = HEAD * max(shown.peak, limit if drawn else 0, 1)
        ticks = _ticks(highest)
        self._left = max(painter.fontMetrics().horizontalAdvance(_tick(value)) for value in ticks) + GAP
        area = QRectF(self._left, 2, max(width - self._left - 1, 1.0), height - line - 6)
        for value in ticks:
            level = area.bottom() - value / highest * area.height()
            painter.setPen(QPen(theme.color("grid"), 1))
            painter.drawLine(QPointF(area.left(), level), QPointF(area.right(), level))
            painter.setPen(theme.color("dim"))
            beside = QRectF(0, min(max(level - line / 2, 0), height - line), self._left - GAP, line)
            painter.drawText(beside, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, _tick(value))
        self._draw_phases(shown, painter, area, line)
        self._draw_curve(shown, painter, area, highest, limit)
        if limit:
            self._draw_budget(painter, area, area.bottom() - limit / highest * area.height() if drawn else None, line)

    def _draw_phases(self, shown: Footprint, painter: QPainter, area: QRectF, line: int) -> None:
        """Shade every second phase, and write as many names as there is room for, the longest phases first."""
        stretches, scale = _stretches(shown.phases), area.width() / len(shown.phases)
        for start, stop, _ in stretches[1::2]:
            place = QRectF(area.left() + start * scale, area.top(), (stop - start) * scale, area.height())
            painter.fillRect(place, theme.color("accent", 18))
        painter.setPen(theme.color("dim"))
        written: list[QRectF] = []
        for start, stop, phase in sorted(stretches, key=lambda each: each[0] - each[1]):
            wide = painter.fontMetrics().horizontalAdvance(PHASES[phase]) + GAP
            left = area.left() + (start + stop) / 2 * scale - wide / 2
            left = min(max(left, area.left() - GAP), area.right() - wide + GAP / 2)
            below = QRectF(left, area.bottom() + 3, wide, line)
            if not any(below.intersects(other) for other in written):
                painter.drawText(below, Qt.AlignmentFlag.AlignHCenter, PHASES[phase])
                written.append(below)

    def _draw_curve(self, shown: Footprint, painter: QPainter, area: QRectF, highest: float, limit: int) -> None:
        """Draw the curve, in the error colour where it is above the limit."""
        across, taken = _columns(np.array(shown.curve, float), int(area.width()))
        down = area.bottom() - taken / highest * area.height()
        path = QPainterPath(QPointF(area.left(), area.bottom()))
        for start, stop, level in zip(across[:-1].tolist(), across[1:].tolist(), down.tolist(), strict=True):
            path.lineTo(area.left() + start * area.width(), level)
            path.lineTo(area.left() + stop * area.width(), level)
        path.lineTo(area.right(), area.bottom())
        over = area.bottom() - limit / highest * area.height() if limit else area.top()
        over = max(over, area.top())
        for top, foot, colour in ((over, area.bottom(), "accent"), (area.top(), over, "bad")):
            painter.save()
            painter.setClipRect(QRectF(area.left(), top - 1, area.width() + 1, foot - top + 1))
            painter.fillPath(path, theme.color(colour, PALE))
            painter.strokePath(path, QPen(theme.color(colour), 1))
            painter.restore()

    def _draw_budget(self, painter: QPainter, area: QRectF, level: float | None, line: int) -> None:
        text = f"budget {self._budget:,} MB"
        above = area.top()
        if level is None:
            text += " ↑"
        else:
            painter.setPen(QPen(theme.color("warning"), 1, Qt.PenStyle.DashLine))
            painter.drawLine(QPointF(area.left(), level), QPointF(area.right(), level))
            above = level - line - 1 if level - line - 1 >= 0 else level + 1
        painter.setPen(theme.color("warning"))
        painter.drawText(QRectF(area.left() + 4, above, area.width() - 8, line), Qt.AlignmentFlag.AlignRight, text)


def _stretches(phases: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """Return where each phase begins and ends, and its number."""
    there = np.array(phases)
    starts = [0, *(np.flatnonzero(np.diff(there)) + 1).tolist()]
    return [(start, stop, phases[start]) for start, stop in zip(starts, [*starts[1:], len(phases)], strict=True)]


def _columns(curve: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the edges of at most `most` columns, as shares of the width, and the maximum of each."""
    edges = np.linspace(0, len(curve), min(len(curve), max(most, 1)) + 1).astype(int)
    return edges / len(curve), np.maximum.reduceat(curve, edges[:-1])


def _ticks(highest: float) -> list[float]:
    """Return 0 and two to four round numbers up to the highest."""
    unit = 10.0 ** math.floor(math.log10(highest / 2))
    step = next(each * unit for each in (5, 2, 1) if highest / (each * unit) >= 2)
    return [step * index for index in range(int(highest / step) + 1)]


def _tick(value: float) -> str:
    return texts.size(round(value)) if value else "0"

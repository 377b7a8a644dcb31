"""The line of words over a plot, each above its step. It is above the axes, so no word covers a curve or a mark. If
there is little room, the words get shorter, and changes that are close together share a number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from PySide6.QtCore import Qt
from PySide6.QtGui import QFont, QFontMetricsF
from PySide6.QtWidgets import QGraphicsRectItem, QGraphicsSimpleTextItem

from gradstudio.gui.drawing import overlay
from gradstudio.gui.drawing.canvas import Canvas
from gradstudio.gui.drawing.cheap_frame import leave_unpainted
from gradstudio.gui.theme import theme

HIGH = 17  # px of the line at normal text
ASIDE = 3  # px between a step and its words
BETWEEN = 8  # px between two words
CLOSE = 16  # px between two changes that share a number
KINDS = ("nonfinite", "peaks", "overlays", "changes", "parting")  # by priority
MOST = 40  # words of a kind that are placed: there is never room for more


@dataclass(frozen=True)
class Tag:
    """The words at one step. `texts` go from the longest to the shortest; `color` is a role of the theme, or the slot
    of an overlay."""

    step: float
    texts: tuple[str, ...]
    color: str | int
    tip: str = ""
    number: int = 0  # of a change
    centred: bool = False  # whether it is over its step, rather than beside it
    slides: bool = False  # whether it may be away from its step if others are in the way


class LabelStrip(QGraphicsRectItem):
    """The words of one plot."""

    def __init__(self, canvas: Canvas) -> None:
        super().__init__(canvas.box)
        self.setPen(Qt.PenStyle.NoPen)
        leave_unpainted(self)
        self._canvas = canvas
        self._tags: dict[str, tuple[Tag, ...]] = {kind: () for kind in KINDS}
        self._items: list[QGraphicsSimpleTextItem] = []

    @property
    def texts(self) -> list[str]:
        """What is written, from left to right."""
        shown = [item for item in self._items if item.isVisible()]
        return [item.text() for item in sorted(shown, key=QGraphicsSimpleTextItem.x)]

    def show_tags(self, kind: str, tags: Sequence[Tag]) -> None:
        """Replace the words of this kind."""
        if tuple(tags) != self._tags[kind]:
            self._tags[kind] = tuple(tags)
            self.place()

    def restyle(self) -> None:
        _width.cache_clear()
        self.place()

    def place(self) -> None:
        """Position the words for the ranges and the size of the plot."""
        if not self._items and not any(self._tags.values()):
            return
        placed = self._arrange()
        for _ in range(len(placed) - len(self._items)):
            self._items.append(QGraphicsSimpleTextItem(self))
        for item in self._items[len(placed) :]:
            item.hide()
        bold, plain = _font(bold=True), _font(bold=False)
        for item, (tag, left, text, kind) in zip(self._items, placed, strict=False):
            item.setText(text)
            item.setFont(bold if kind == "nonfinite" else plain)
            item.setBrush(theme.color(tag.color) if isinstance(tag.color, str) else overlay.color(tag.color))
            item.setToolTip(tag.tip)
            item.setPos(round(left), -HIGH * theme.zoom)
            item.show()

    def _arrange(self) -> list[tuple[Tag, float, str, str]]:
        """Return each tag that has room, with its left edge, its text and its kind."""
        wide = self._canvas.size[0]
        waiting: list[tuple[Tag, float, str]] = []
        for kind, tags in self._tags.items():
            there = [(tag, float(self._canvas.across(tag.step))) for tag in tags]
            there = [(tag, x) for tag, x in there if -1 <= x <= wide + 1][-MOST:]
            waiting += [(tag, x, kind) for tag, x in (_join(there) if kind == "changes" else there)]
        spans: dict[int, tuple[float, float]] = {}
        said: dict[int, str] = {}
        fixed = [index for index, (tag, *_) in enumerate(waiting) if not tag.slides]
        sliding = [index for index, (tag, *_) in enumerate(waiting) if tag.slides]
        # first room for a short word of each, then for more of them, and sliding ones go where room is left
        rounds = [(index, waiting[index][0].texts[-1:]) for index in fixed]
        rounds += [(index, waiting[index][0].texts[:-1]) for index in fixed]
        rounds += [(index, waiting[index][0].texts) for index in sliding]
        for index, texts in rounds:
            tag, x, kind = waiting[index]
            taken = [span for other, span in spans.items() if other != index]
            for text in texts:
                span = _place(x, _width(text, kind == "nonfinite"), wide, taken, tag)
                if span is not None:
                    spans[index], said[index] = span, text
                    break
        return [(waiting[index][0], span[0], said[index], waiting[index][2]) for index, span in spans.items()]


def _place(
    x: float, width: float, room: float, taken: list[tuple[float, float]], tag: Tag
) -> tuple[float, float] | None:
    """Return the left and right edge of words at a step, beside it or over it, if that is free; None if not."""
    starts = [x + ASIDE, x - ASIDE - width]
    if tag.centred:
        starts = [x - width / 2, *starts]
    if tag.slides:
        near = [last + BETWEEN for _, last in taken] + [first - BETWEEN - width for first, _ in taken]
        starts += sorted([*near, room - width], key=lambda left: abs(left + width / 2 - x))
    for left in starts:
        if not 0 <= left <= room - width:
            continue
        if all(left + width + BETWEEN <= first + 0.5 or last + BETWEEN <= left + 0.5 for first, last in taken):
            return left, left + width
    return None


def _join(tags: list[tuple[Tag, float]]) -> list[tuple[Tag, float]]:
    """Return the tags of changes, one for all that are too close to be told apart."""
    joined: list[tuple[Tag, float]] = []
    group: list[Tag] = []
    for tag, x in tags:
        if joined and x - joined[-1][1] < CLOSE * theme.zoom:
            group.append(tag)
            first, last = group[0].number, group[-1].number
            numbers = f"{first}, {last}" if last == first + 1 else f"{first}–{last}"
            tip = "\n".join(each.tip for each in group)
            joined[-1] = (replace(group[0], texts=(numbers,), tip=tip), joined[-1][1])
        else:
            group = [tag]
            joined.append((tag, x))
    return joined


def _font(*, bold: bool) -> QFont:
    return theme.font(0.82, QFont.Weight.DemiBold if bold else QFont.Weight.Normal)


@lru_cache(maxsize=1024)
def _width(text: str, bold: bool) -> float:
    return QFontMetricsF(_font(bold=bold)).horizontalAdvance(text)

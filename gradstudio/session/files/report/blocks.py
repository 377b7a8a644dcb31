"""The blocks of a report. A section defines their content; html_page.py and pdf_pages.py their appearance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

Tone = Literal["", "good", "bad", "warning", "dim"]


@dataclass(frozen=True)
class Prose:
    """A text. `answer`: it belongs to the card before it; any other short one introduces what follows it."""

    text: str
    dim: bool = False
    answer: bool = False
    kind: ClassVar[str] = "prose"


@dataclass(frozen=True)
class Tile:
    """One number with its name below it."""

    label: str
    value: str
    tone: Tone = ""


@dataclass(frozen=True)
class Tiles:
    tiles: tuple[Tile, ...]
    kind: ClassVar[str] = "tiles"


@dataclass(frozen=True)
class Table:
    """A table. `widths`: share of the page's width for each column. A row with one cell is the heading of a group."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    widths: tuple[float, ...]
    code: tuple[int, ...] = ()  # columns that contain names and values rather than words
    kind: ClassVar[str] = "table"


@dataclass(frozen=True)
class Plot:
    """A figure. `draw(axes, trace, colours)` draws it; `height` in inches on a page that is `plots.WIDTH` wide."""

    name: str
    title: str
    note: str
    height: float
    draw: Callable[..., None]
    trace: Any
    kind: ClassVar[str] = "plot"


@dataclass(frozen=True)
class Card:
    """A finding: `label` is its severity, `where` its steps and layers."""

    tone: Tone
    label: str
    title: str
    where: str
    lines: tuple[str, ...]
    remedies: tuple[str, ...]
    kind: ClassVar[str] = "card"


@dataclass(frozen=True)
class Code:
    text: str
    kind: ClassVar[str] = "code"


@dataclass(frozen=True)
class Fold:
    """A long text that a reader unfolds. On paper, `elsewhere` says where to find the text; if it is to be `printed`,
    it follows."""

    title: str
    text: str
    elsewhere: str
    printed: bool = False
    kind: ClassVar[str] = "fold"


@dataclass(frozen=True)
class KeyRow:
    """One run of a figure: its letter, the name of its colour, its dashes in points, its title."""

    letter: str
    series: str
    dashes: tuple[float, ...]
    title: str
    text: str


@dataclass(frozen=True)
class Key:
    """The legend of the figures' lines."""

    rows: tuple[KeyRow, ...]
    kind: ClassVar[str] = "key"


@dataclass(frozen=True)
class Formula:
    """A formula in matplotlib's mathtext, without dollar signs, that can be parsed."""

    text: str
    kind: ClassVar[str] = "formula"


Block = Key | Prose | Tiles | Table | Plot | Card | Code | Fold | Formula


@dataclass(frozen=True)
class Section:
    id: str
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Document:
    """A whole report. `state` says how the run ended, in half a sentence, and `tone` whether that is good; `about` is
    the small print below."""

    title: str
    state: str
    tone: Tone
    summary: str
    about: str
    sections: tuple[Section, ...]

"""Typesetting: the width of a text, and its line breaks."""

from __future__ import annotations

from functools import lru_cache

from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

# Control characters are invisible, and those that change the direction of writing would affect all text after them.
_TURNING = (0x061C, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_ODD = dict.fromkeys((*range(9), 11, 12, *range(14, 32), *range(127, 160), *_TURNING), "")


def printable(text: str) -> str:
    """Return the text without unprintable characters; line breaks and tabs stay."""
    return text.translate(_ODD)


@lru_cache(maxsize=16)
def font(bold: bool = False, mono: bool = False) -> FontProperties:
    return FontProperties(family=["DejaVu Sans Mono" if mono else "DejaVu Sans"], weight="bold" if bold else "normal")


@lru_cache(maxsize=20_000)
def width(text: str, size: float, bold: bool = False, mono: bool = False) -> float:
    """Return the width of a line of text in points."""
    properties = font(bold, mono).copy()
    properties.set_size(size)
    return text_to_path.get_text_width_height_descent(text, properties, ismath=False)[0]


def wrap(text: str, size: float, across: float, bold: bool = False, mono: bool = False) -> list[str]:
    """Return the text in lines no wider than `across` points. A wider word is broken; leading spaces stay."""
    text = printable(text).replace("\r", "").replace("\n", " ").expandtabs(4)
    space = width("x x", size, bold, mono) - width("xx", size, bold, mono)
    lines, line, taken = [], "", 0.0
    for index, word in enumerate(text.split(" ")):
        for piece_index, piece in enumerate(_pieces(word, size, across, bold, mono)):
            wide = width(piece, size, bold, mono) if piece else 0.0
            gap = space if index and not piece_index else 0.0
            if line.strip() and (piece_index or taken + gap + wide > across):
                lines.append(line)
                line, taken = piece, wide
            else:
                line, taken = line + (" " if gap else "") + piece, taken + gap + wide
    return [*lines, line]


def _pieces(word: str, size: float, across: float, bold: bool, mono: bool) -> list[str]:
    """Return a word in parts that each fit."""
    pieces = []
    most = int(across / (0.2 * size)) + 2  # letters that fit if all are as narrow as an i
    while len(word) > 1 and (len(word) > most or width(word, size, bold, mono) > across):
        low, high = 1, min(len(word), most)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if width(word[:middle], size, bold, mono) <= across else (low, middle)
        pieces.append(word[:low])
        word = word[low:]
    return [*pieces, word]

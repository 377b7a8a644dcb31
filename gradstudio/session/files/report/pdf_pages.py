"""The report as a PDF: the same sections on A4 pages, set line by line, so that nothing is cut off and text stays
text."""

from __future__ import annotations

import io
from collections.abc import Sequence

from matplotlib.backends.backend_pdf import PdfPages

import gradstudio
from gradstudio.session.course.formula import outline
from gradstudio.session.files.report import figures
from gradstudio.session.files.report.a4_sheet import INCH, MARGIN, PAGE, Sheets
from gradstudio.session.files.report.blocks import (
    Block,
    Card,
    Code,
    Document,
    Fold,
    Formula,
    Key,
    Plot,
    Prose,
    Table,
    Tiles,
)
from gradstudio.session.files.report.palette import LIGHT
from gradstudio.session.files.report.typesetting import wrap

_GAP = 10  # points between two blocks
_LEADING_UP = 120  # letters of a line that belongs to what follows it
_CODE_LINE, _FIRST_LINES = 11, 12  # points per line of code, and how many of them stay with their heading
_ROW = 20  # points per row of a table
_QUESTION = 100  # points for a question of a worksheet with the beginning of its answer
_FORMULA = 10  # points per letter of a formula
_BELOW = 0.26 * INCH  # points under the axes of a figure, for the steps
_ACROSS = PAGE[0] - 2 * MARGIN


def render(document: Document) -> bytes:
    """Return the pages as one PDF."""
    buffer = io.BytesIO()
    with figures.drawing():
        sheets = Sheets()
        _title(sheets, document)
        for section in document.sections:
            sheets.room(36 + _together(section.blocks))
            sheets.skip(14)
            sheets.line(section.title, size=12.5, bold=True)
            sheets.skip(7)
            for index, block in enumerate(section.blocks):
                sheets.room(_together(section.blocks[index:]))
                _SET[block.kind](sheets, block)
        sheets.number(document.about)
        facts = {"Title": f"{document.title}: {document.state}", "Creator": f"GradStudio {gradstudio.__version__}"}
        with PdfPages(buffer, metadata=facts) as pages:
            for figure in sheets.pages:
                pages.savefig(figure)
    return buffer.getvalue()


def _together(blocks: Sequence[Block]) -> float:
    """Return the height in points that the first block needs on one page, including the second if the first introduces
    it."""
    first, *others = blocks
    if isinstance(first, Plot):
        return first.height * INCH + 20
    if isinstance(first, Prose) and len(first.text) < _LEADING_UP and others and not first.answer:
        return 30 + _together(others)
    if isinstance(first, Prose) and others and isinstance(others[0], Code | Fold | Table):
        return 45 + _together(others)
    if isinstance(first, Code | Fold):
        lines = first.text.count("\n") + 1 if isinstance(first, Code) or first.printed else 0
        return 30 + _CODE_LINE * min(lines, _FIRST_LINES)
    if isinstance(first, Table):
        return 40 + _ROW * min(len(first.rows), 2)
    if isinstance(first, Card) and others and isinstance(others[0], Prose) and others[0].answer:
        return _QUESTION
    return 45


def _title(sheets: Sheets, document: Document) -> None:
    for line in wrap(document.title, 20, _ACROSS, bold=True):
        sheets.line(line, size=20, bold=True)
        sheets.skip(2)
    sheets.skip(4)
    sheets.paragraph(document.state, size=11, bold=True, colour=LIGHT[document.tone or "text"])
    if document.summary:
        sheets.skip(6)
        sheets.paragraph(document.summary, colour=LIGHT["dim"])
    sheets.skip(4)


def _prose(sheets: Sheets, block: Prose) -> None:
    sheets.paragraph(block.text, size=9 if block.dim else 10, colour=LIGHT["dim" if block.dim else "text"])
    sheets.skip(_GAP if not block.dim else 6)


def _tiles(sheets: Sheets, block: Tiles) -> None:
    across, height = 5, 40
    width = _ACROSS / across
    for start in range(0, len(block.tiles), across):
        sheets.room(height)
        for index, tile in enumerate(block.tiles[start : start + across]):
            left = MARGIN + index * width
            sheets.text(left, sheets.y + 13, tile.value, size=13, bold=True, colour=LIGHT[tile.tone or "text"])
            sheets.text(left, sheets.y + 25, tile.label, size=7.5, colour=LIGHT["dim"])
        sheets.skip(height)


def _table(sheets: Sheets, block: Table) -> None:
    size, leading, pad = (8, 10.5, 4.5) if len(block.head) <= 6 else (6.5, 8.5, 4)
    lefts = [MARGIN + _ACROSS * sum(block.widths[:index]) for index in range(len(block.widths))]

    def head() -> None:
        for left, cell in zip(lefts, block.head, strict=True):
            sheets.text(left, sheets.y + 8, cell, size=7.5, colour=LIGHT["dim"])
        sheets.skip(8 + pad)

    sheets.room(60)
    head()
    for row in block.rows:
        group = len(row) == 1 and len(block.head) > 1
        widths = [_ACROSS] if group else [_ACROSS * width - 8 for width in block.widths]
        mono = [index in block.code and not group for index in range(len(row))]
        cells = [
            wrap(cell, size, wide, bold=group, mono=fixed) for cell, wide, fixed in zip(row, widths, mono, strict=True)
        ]
        height = leading * max(len(lines) for lines in cells) + pad
        if sheets.room(height + (2 * leading if group else 0)):
            head()
        sheets.rule(sheets.y)
        for index, (left, lines) in enumerate(zip(lefts, cells, strict=False)):
            for number, text in enumerate(lines):
                sheets.text(
                    left, sheets.y + pad - 2 + size + number * leading, text, size=size, bold=group, mono=mono[index]
                )
        sheets.skip(height)
    sheets.skip(_GAP)


def _plot(sheets: Sheets, block: Plot) -> None:
    key, height = 15, block.height * INCH - 0.24 * INCH
    sheets.room(14 + key + height + 6)
    sheets.text(MARGIN, sheets.y + 9, block.title, size=9.5, bold=True)
    sheets.text(PAGE[0] - MARGIN, sheets.y + 9, block.note, size=7.5, colour=LIGHT["dim"], align="right")
    sheets.skip(14 + key)
    left, right = 1.1 * INCH, 0.45 * INCH
    axes = sheets.axes(MARGIN + left, sheets.y, _ACROSS - left - right, height - _BELOW)
    block.draw(axes, block.trace, LIGHT)
    sheets.skip(height + 6)


def _card(sheets: Sheets, block: Card) -> None:
    inner = _ACROSS - 14
    tries = [f"Worth trying: {',  '.join(block.remedies)}"] if block.remedies else []
    parts = [
        (block.title, 10, True, "text"),
        (" · ".join(filter(None, (block.label, block.where))), 8, False, block.tone or "dim"),
    ]
    parts += [(line, 9, False, "text" if index == 0 else "dim") for index, line in enumerate(block.lines)]
    parts += [(line, 8.5, False, "text") for line in tries]
    lines = [
        (text, size, bold, colour) for part, size, bold, colour in parts for text in wrap(part, size, inner, bold=bold)
    ]
    height = sum(1.45 * size for _, size, _, _ in lines)
    sheets.room(height + _GAP)
    sheets.bar(MARGIN, sheets.y, 2.5, height, LIGHT[block.tone or "dim"])
    for text, size, bold, colour in lines:
        sheets.text(MARGIN + 12, sheets.y + size, text, size=size, bold=bold, colour=LIGHT[colour])
        sheets.skip(1.45 * size)
    sheets.skip(_GAP)


def _formula(sheets: Sheets, block: Formula) -> None:
    drawn = outline(block.text)
    wide, high = (drawn.points.max(axis=0) - drawn.points.min(axis=0)).tolist()
    scale = min(_FORMULA / 100, (_ACROSS - 14) / wide)
    sheets.room(high * scale + _GAP)
    sheets.skip(high * scale)
    sheets.outline(MARGIN + 12, sheets.y, drawn.points, drawn.codes, scale)
    sheets.skip(_GAP)


def _code(sheets: Sheets, block: Code, size: float = 8) -> None:
    leading = 1.375 * size
    for raw in block.text.splitlines() or [""]:
        for text in wrap(raw, size, _ACROSS - 10, mono=True):
            sheets.room(leading)
            sheets.bar(MARGIN, sheets.y, 1.5, leading, LIGHT["line"])
            sheets.text(MARGIN + 8, sheets.y + size, text, size=size, mono=True)
            sheets.skip(leading)
    sheets.skip(_GAP)


def _fold(sheets: Sheets, block: Fold) -> None:
    _prose(sheets, Prose(block.elsewhere))
    if block.printed:
        _code(sheets, Code(block.text), size=7)


def _key(sheets: Sheets, block: Key) -> None:
    inner = _ACROSS - 68
    for row in block.rows:
        titles, texts = wrap(row.title, 9.5, inner, bold=True), wrap(row.text, 8, inner)
        sheets.room(14 * len(titles) + 11 * len(texts) + 5)
        sheets.text(MARGIN, sheets.y + 9, row.letter, size=9.5, bold=True, colour=LIGHT[row.series])
        sheets.stroke(MARGIN + 16, sheets.y + 6, 40, LIGHT[row.series], row.dashes)
        for line, size, leading, bold in [(line, 9.5, 13, True) for line in titles] + [
            (line, 8, 11, False) for line in texts
        ]:
            sheets.text(MARGIN + 68, sheets.y + 9, line, size=size, bold=bold, colour=LIGHT["text" if bold else "dim"])
            sheets.skip(leading)
        sheets.skip(5)
    sheets.skip(4)


_SET = {
    "key": _key,
    "prose": _prose,
    "tiles": _tiles,
    "table": _table,
    "plot": _plot,
    "card": _card,
    "formula": _formula,
    "code": _code,
    "fold": _fold,
}

"""The report of a run or of a comparison of several: the same sections as one self-contained HTML file or as a PDF. Made without Qt, and
without a screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gradstudio.session.run import Run

if TYPE_CHECKING:
    from gradstudio.session.report.blocks import Document


def html(run: Run, note: str = "") -> str:
    """The report as one HTML page that loads nothing from anywhere. `note` is what the user wrote down about the run."""
    return _html(_of_run(run, note))


def pdf(run: Run, note: str = "") -> bytes:
    """The report on A4 pages, as vectors, with text that can be selected."""
    return _pdf(_of_run(run, note))


def content(run: Run, suffix: str, note: str = "") -> str | bytes:
    """The report in the format of that name; ValueError for one that is not known."""
    return _format(suffix)(_of_run(run, note))


def comparison(runs: Sequence[Run], suffix: str) -> str | bytes:
    """The report of 2 to 8 runs side by side, in the format of that name; ValueError for another number or format."""
    from gradstudio.session.report.side_by_side import document

    return _format(suffix)(document(runs))


def _of_run(run: Run, note: str) -> Document:
    from gradstudio.session.report.sections import document

    return document(run, note)


def _html(document: Document) -> str:
    from gradstudio.session.report.page import render

    return render(document)


def _pdf(document: Document) -> bytes:
    from gradstudio.session.report.paper import render

    return render(document)


_FORMATS = {"html": _html, "pdf": _pdf}


def _format(suffix: str):
    try:
        return _FORMATS[suffix.lower()]
    except KeyError:
        raise ValueError(f"no report format {suffix[:20]!r}; there are: {', '.join(_FORMATS)}") from None

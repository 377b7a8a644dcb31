"""The report of a run or of a comparison of several, and the handbook of the lessons: the same sections as one
self-contained HTML file or as a PDF. It needs neither Qt nor a screen.
May use core and session; never session/map or session/simulator.py. matplotlib draws its figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from gradstudio.session.record.run import Run

if TYPE_CHECKING:
    from gradstudio.core.assignment import Assignment
    from gradstudio.core.exercise import Exercise
    from gradstudio.core.presets import Preset
    from gradstudio.session.course.worksheet import Worksheet
    from gradstudio.session.files.report.blocks import Document, Section
    from gradstudio.session.files.report.journey_section import Fixes
    from gradstudio.session.files.report.worksheet_report import HandedIn


def content(
    run: Run, suffix: str, note: str = "", more: Sequence[Section] = (), line: Sequence[Run] = (),
    fixes: Fixes = MappingProxyType({}),
) -> str | bytes:  # fmt: skip
    """Return the report in this format, with `more` sections after the curves, and for a branch with its journey: the
    runs of its `line`, the oldest first, and the `fixes` that were tried. ValueError for an unknown format."""
    from gradstudio.session.files.report.sections import document

    return _format(suffix)(document(run, note, more, line, fixes))


def comparison(runs: Sequence[Run], suffix: str) -> str | bytes:
    """Return the report of 2 to 8 runs side by side, in this format; ValueError for another number or format."""
    from gradstudio.session.files.report.comparison_report import document

    return _format(suffix)(document(runs))


def handbook(presets: Sequence[Preset], suffix: str) -> str | bytes:
    """Return the lessons of these presets as one document, in this format; ValueError for an unknown one."""
    from gradstudio.session.files.report.course_handbook import document

    return _format(suffix)(document(presets))


def worksheet(
    sheet: Worksheet, exercise: Exercise, runs: Mapping[str, Run], peaks: Mapping[str, str], suffix: str
) -> str | bytes:
    """Return a worksheet that was handed in, in this format; ValueError for an unknown one."""
    from gradstudio.session.files.report.worksheet_report import document

    return _format(suffix)(document(sheet, exercise, runs, peaks))


def grade_table(handed: Sequence[HandedIn], exercises: Mapping[str, Assignment], suffix: str) -> str | bytes:
    """Return the table of a class, in this format; ValueError for an unknown one."""
    from gradstudio.session.files.report.worksheet_report import class_document

    return _format(suffix)(class_document(handed, exercises))


def _html(document: Document) -> str:
    from gradstudio.session.files.report.html_page import render

    return render(document)


def _pdf(document: Document) -> bytes:
    from gradstudio.session.files.report.pdf_pages import render

    return render(document)


_FORMATS = {"html": _html, "pdf": _pdf}


def _format(suffix: str):
    try:
        return _FORMATS[suffix.lower()]
    except KeyError:
        raise ValueError(f"no report format {suffix[:20]!r}; there are: {', '.join(_FORMATS)}") from None

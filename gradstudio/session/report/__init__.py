"""The report of a run: the same sections as one self-contained HTML file or as a PDF. Made without Qt, and without a screen."""

from __future__ import annotations

from gradstudio.session.run import Run


def html(run: Run) -> str:
    """The report as one HTML page that loads nothing from anywhere."""
    from gradstudio.session.report.page import render

    return render(run)


def pdf(run: Run) -> bytes:
    """The report on A4 pages, as vectors, with text that can be selected."""
    from gradstudio.session.report.paper import render

    return render(run)


_FORMATS = {"html": html, "pdf": pdf}


def content(run: Run, suffix: str) -> str | bytes:
    """The report in the format of that name; ValueError for one that is not known."""
    try:
        return _FORMATS[suffix.lower()](run)
    except KeyError:
        raise ValueError(f"no report format {suffix[:20]!r}; there are: {', '.join(_FORMATS)}") from None

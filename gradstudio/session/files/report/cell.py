"""Runs as HTML for the output of a notebook cell: how they ended, what was found, the pictures of a report."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from gradstudio.core.diagnosis.finding import Findings
from gradstudio.session.record.ranked_findings import ranked_findings
from gradstudio.session.record.run import Run
from gradstudio.session.words.story import headline

SHOWN = 4  # number of runs, and of pictures of each
ASIDE = ("lr", "directions")  # pictures that a cell leaves out


def cell(runs: Sequence[Run]) -> str:
    """Return the latest runs, the last one with its pictures."""
    if not runs:
        return "<p>GradStudio: no step was seen yet</p>"
    more = f"<p>and {len(runs) - SHOWN} runs before</p>" if len(runs) > SHOWN else ""
    return more + "".join(_show_run(run, run is runs[-1]) for run in runs[-SHOWN:])


def _show_run(run: Run, with_pictures: bool) -> str:
    head = f"<h4>{escape(run.title)}: {escape(headline(run))}</h4>"
    return f"{head}{Findings(ranked_findings(run))._repr_html_()}{_pictures(run) if with_pictures else ''}"


def _pictures(run: Run) -> str:
    try:
        from gradstudio.session.files.report.blocks import Plot
        from gradstudio.session.files.report.html_page import svg
        from gradstudio.session.files.report.palette import LIGHT
        from gradstudio.session.files.report.sections import curves
    except ImportError as fault:
        return f"<p>no pictures: {escape(str(fault))}; pip install 'gradstudio[report]'</p>"
    section = curves(run)
    blocks = section.blocks if section is not None else ()
    plots = [each for each in blocks if isinstance(each, Plot) and each.name not in ASIDE][:SHOWN]
    colours = ";".join(f"--{name}:{colour}" for name, colour in LIGHT.items())
    drawn = "".join(f"<div>{escape(plot.title)}</div>{svg(plot)}" for plot in plots)
    return f"<div style='{colours};background:var(--panel);color:var(--text);max-width:760px;padding:8px'>{drawn}</div>"

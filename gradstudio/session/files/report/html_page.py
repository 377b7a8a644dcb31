"""The report as one HTML page: no script, nothing loaded from outside, light or dark as the reader's system is."""

from __future__ import annotations

import io
import re

import jinja2
from markupsafe import Markup
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

import gradstudio
from gradstudio.core import files
from gradstudio.session.files.report import figures
from gradstudio.session.files.report.blocks import Document, Plot
from gradstudio.session.files.report.palette import DARK, LIGHT, SENTINELS, VARIABLES
from gradstudio.session.files.report.typesetting import fonts_closed, shown

TOP, BOTTOM = 0.24, 0.26  # inches above and below the axes


@fonts_closed()
def render(document: Document) -> str:
    """Return the page. Everything that comes from a run, a preset or a file is escaped."""
    loader = jinja2.FileSystemLoader(files.RESOURCES / "report")
    environment = jinja2.Environment(
        loader=loader,
        autoescape=True,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["svg"] = svg
    template = environment.get_template("report.html.j2")
    return template.render(document=document, light=LIGHT, dark=DARK, version=gradstudio.__version__)


def _finalize(value: object) -> object:
    return shown(value) if type(value) is str else value  # a Markup is made here and has nothing to hide


def svg(plot: Plot) -> Markup:
    """Return a figure as an inline SVG whose colours are variables of the page, and whose ids are unique."""
    with figures.drawing(**{"svg.hashsalt": plot.name}):
        figure = Figure(figsize=(figures.WIDTH, plot.height), facecolor="none", dpi=200)
        FigureCanvasSVG(figure)
        width = figures.WIDTH - figures.LEFT - figures.RIGHT
        axes = figure.add_axes(
            (
                figures.LEFT / figures.WIDTH,
                BOTTOM / plot.height,
                width / figures.WIDTH,
                1 - (TOP + BOTTOM) / plot.height,
            )
        )
        plot.draw(axes, plot.trace, SENTINELS)
        buffer = io.StringIO()
        figure.savefig(
            buffer,
            format="svg",
            transparent=False,
            metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
        )
    return Markup(_inline(buffer.getvalue(), plot))


def _inline(text: str, plot: Plot) -> str:
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\s(?:xmlns(?::xlink)?)="[^"]*"', "", text)
    text = re.sub(r'\sid="', f' id="{plot.name}-', text)
    text = re.sub(r'(xlink:href="|url\()#', rf"\1#{plot.name}-", text)
    text = re.sub(
        r'<svg [^>]*?viewBox="([^"]*)"[^>]*>',
        rf'<svg viewBox="\1" role="img" aria-label="{plot.title}">',
        text,
        count=1,
    )
    for colour, variable in VARIABLES.items():
        text = text.replace(colour, variable)
    return text

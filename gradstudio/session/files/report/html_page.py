"""The report as one HTML page: no script, nothing loaded from outside, light or dark like the reader's system."""

from __future__ import annotations

import io
import re

import jinja2
from markupsafe import Markup
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

import gradstudio
from gradstudio.core import files
from gradstudio.session.course.formula import outline
from gradstudio.session.files.report import figures
from gradstudio.session.files.report.blocks import Document, Formula, Plot
from gradstudio.session.files.report.palette import DARK, LIGHT, SENTINELS, VARIABLES
from gradstudio.session.files.report.typesetting import printable

TOP, BOTTOM = 0.24, 0.26  # inches above and below the axes
FORMULA = 16  # pixels per letter of a formula
_LETTERS = {1: ("M", 1), 2: ("L", 1), 3: ("Q", 2), 4: ("C", 3), 79: ("Z", 0)}  # of SVG, and points, for each code


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
    environment.filters["formula"] = formula
    template = environment.get_template("report.html.j2")
    return template.render(document=document, light=LIGHT, dark=DARK, version=gradstudio.__version__)


def _finalize(value: object) -> object:
    return printable(value) if type(value) is str else value  # a Markup is created here and needs no escaping


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


def formula(block: Formula) -> Markup:
    """Return a formula as an inline SVG in the colour of the text around it."""
    drawn = outline(block.text)
    (left, bottom), (right, top) = drawn.points.min(axis=0), drawn.points.max(axis=0)
    places = iter([f"{x - left:.1f} {top - y:.1f}" for x, y in drawn.points.tolist()])
    parts, codes = [], iter(drawn.codes.tolist())
    for code in codes:
        letter, points = _LETTERS[code]
        parts.append(letter + " ".join(next(places) for _ in range(points)))
        for _ in range(points - 1):  # matplotlib assigns each point of a curve a code
            next(codes)
        if letter == "Z":
            next(places)  # the point where it closes, which has no meaning
    wide, high = right - left, top - bottom
    return Markup(
        '<svg class="formula" viewBox="0 0 {:.1f} {:.1f}" width="{:.0f}" role="img" aria-label="{}">'
        '<path d="{}" fill="currentColor"/></svg>'
    ).format(wide, high, wide * FORMULA / 100, block.text, "".join(parts))


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

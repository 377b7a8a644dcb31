"""The section of a report on the memory of one step. It is included if that was computed: for a run with a memory
budget, on the page Memory, or for `gradstudio report --memory`."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullLocator

from gradstudio.core.footprint import MB, PHASES, Cure, Footprint
from gradstudio.session.files.report.blocks import Block, Plot, Prose, Section, Table
from gradstudio.session.files.report.figures import Colours, frame
from gradstudio.session.footprint import budget, texts
from gradstudio.session.record.run import Run


def memory(run: Run) -> Section | None:
    """Return the section: the memory use of a step of the run with its initial knobs; None if unknown."""
    footprints = None if run.watched is not None else budget.cached_footprint(run.experiment)
    if footprints is None:
        return None
    footprint, cures = footprints
    limit = run.experiment.run.memory_budget
    text = f"{texts.peak_text(footprint)}{f'; {texts.budget_text(footprint, limit)}' if limit else ''}."
    blocks: list[Block] = [
        Prose(text[0].upper() + text[1:]),
        Table(("", "at the peak", "at most"), tuple(texts.part_rows(footprint)), (0.4, 0.3, 0.3)),
        Plot("memory", "Memory over one step", "after each operation", 1.3, _curve, (footprint, limit)),
    ]
    if cures:
        blocks.append(Prose("What would lower the peak:"))
        blocks.append(Table(("change", "peak and price"), tuple(map(_cure, cures)), (0.4, 0.6)))
    return Section("memory", "Memory", (*blocks, Prose(texts.PLAIN_LOOP, dim=True)))


def _cure(cure: Cure) -> tuple[str, str]:
    change, _, price = texts.cure_text(cure).partition(": ")
    return change, price if cure.fits else f"{price}; does not fit"


def _curve(axes: Axes, trace: tuple[Footprint, int], colours: Colours) -> None:
    """Draw the bytes after each operation, the budget, and the beginning of each phase."""
    footprint, limit = trace
    taken, phases = np.array([footprint.before, *footprint.curve]) / MB, np.array(footprint.phases)
    frame(axes, len(taken), colours)
    axes.plot(taken, color=colours["accent"], linewidth=1.2, drawstyle="steps-post")
    most = float(taken.max())
    if 0 < limit < 4 * most:
        axes.axhline(limit, color=colours["warning"], linewidth=1.0, dashes=(1, 1.5))
        most = max(most, limit)
    axes.set_ylim(0, 1.15 * most)
    axes.set_xlim(0, max(len(taken) - 1, 1))
    starts = np.flatnonzero(np.diff(phases, prepend=-1))
    ends = [*starts[1:], len(phases)]
    shown = [(start, end) for start, end in zip(starts, ends, strict=True) if end - start > 0.07 * len(phases)]
    axes.set_xticks([(start + end) / 2 for start, end in shown], [PHASES[phases[start]] for start, _ in shown])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: texts.size(value * MB) if value else "0"))
    for start in starts[1:]:
        axes.axvline(start, color=colours["dim"], linewidth=0.5, alpha=0.5)

"""The section of a run's report that shows the run on a map."""

from __future__ import annotations

from functools import partial
from typing import Any

from gradstudio.core.experiment import Experiment
from gradstudio.core.knobs import Value, format_value
from gradstudio.core.text import number
from gradstudio.session.files.report.blocks import Plot, Prose, Section
from gradstudio.session.map import picture
from gradstudio.session.map.axis import Axis
from gradstudio.session.map.drawing import Drawing, drawing_of
from gradstudio.session.map.journal import Stored
from gradstudio.session.map.plan import Job, Plan, Spot
from gradstudio.session.map.summary import in_words
from gradstudio.session.record.run import Run

HEIGHT = 3.4  # inches of a panel
KEY_WIDTH = 0.26  # share of a panel's width that is left for the key
_ENDED = {"learned": "learned", "stuck": "stayed at guessing", "diverged": "diverged", "failed": "failed"}


def of(run: Run, stored: Stored) -> Section:
    """Return the section: what the map holds, where the run lies on it, and a picture of each panel."""
    made, place = drawing_of(stored), spot_of(stored.plan, run.experiment)
    note = "each cell is a run; the line is the boundary between those that diverged and those that held"
    panels = [
        Plot(
            f"map-{panel}", made.name_of(panel) or "Where training holds", note, HEIGHT,
            partial(_draw, panel=panel, place=place), made,
        )
        for panel in range(stored.plan.shape[0])
    ]  # fmt: skip
    told = [Prose(line) for line in in_words(stored).splitlines()]
    return Section("map", "Stability map", (*told, Prose(_where(run, stored, place)), *panels))


def spot_of(plan: Plan, experiment: Experiment) -> tuple[int, float, float] | None:
    """Return the panel of an experiment, and its column and row as parts of cells, such as 3.5 for the middle of the
    fourth; None where it does not lie on the map."""
    if plan.by and experiment[plan.by] not in plan.panels:
        return None
    across, up = (_along(axis, experiment[axis.knob]) for axis in (plan.x, plan.y))
    if across is None or up is None:
        return None
    return (plan.panels.index(experiment[plan.by]) if plan.by else 0), across, up


def differing(plan: Plan, experiment: Experiment) -> list[str]:
    """Return the names of the knobs, beside those that are mapped and the seed, in which an experiment differs from the
    cells of a map."""
    mapped = {plan.x.knob, plan.y.knob, plan.by, "run.seed"}
    there = {knob.name: value for knob, value in plan.experiment.items()}
    return [
        knob.name for knob, value in experiment.items() if knob.name not in mapped and there.get(knob.name) != value
    ]


def _where(run: Run, stored: Stored, place: tuple[int, float, float] | None) -> str:
    plan = stored.plan
    here = ", ".join(f"{name} = {format_value(run.experiment[name])}" for name in _mapped(plan))
    if others := differing(plan, run.experiment):
        named = ", ".join(others[:4]) + (f" and {len(others) - 4} more" if len(others) > 4 else "")
        return f"This run ({here}) is not one of this map: it differs in {named}."
    if place is None:
        return f"This run ({here}) lies outside of the map."
    job = _job_of(plan, run.experiment, place)
    cell = stored.results.get(job) if job else None
    if cell is None:
        return (
            f"This run ({here}) lies where the cross is. No cell with exactly these values and this seed was trained."
        )
    told = f"This run ({here}) is the cell at the cross, which {_ENDED[cell.outcome]}"
    if not 0 <= cell.step < len(run.history):
        return f"{told}."
    loss = run.history.value("loss", cell.step)
    agrees = "the same to the last bit" if repr(loss) == repr(cell.loss) else f"{number(loss)} here"
    return f"{told} with a loss of {number(cell.loss)} at step {cell.step:,}: {agrees}."


def _mapped(plan: Plan) -> list[str]:
    return [plan.x.knob, plan.y.knob, *([plan.by] if plan.by else [])]


def _job_of(plan: Plan, experiment: Experiment, place: tuple[int, float, float]) -> Job | None:
    """Return the cell and the seed that an experiment is; None where its values lie between cells."""
    job = Job(Spot(place[0], int(place[1]), int(place[2])), experiment.run.seed - plan.experiment.run.seed)
    if not 0 <= job.seed < plan.seeds:
        return None
    return job if all(experiment[name] == value for name, value in plan.values_at(job.spot).items()) else None


def _along(axis: Axis, value: Value) -> float | None:
    """Return where a value lies on an axis, in cells from its begin; None beside it."""
    import numpy as np

    values = np.array(axis.values, float)
    if not isinstance(value, int | float) or not values[0] <= value <= values[-1]:
        return None
    scale = np.log if axis.log else np.asarray
    return float(np.interp(scale(value), scale(values), np.arange(len(values)))) + 0.5


def _draw(axes: Any, made: Drawing, colours: Any, *, panel: int, place: tuple[int, float, float] | None) -> None:
    """Draw a panel with a key beside it, and the run as a cross."""
    picture.draw(axes, made, panel)
    left, bottom, width, height = axes.get_position().bounds
    axes.set_position((left, bottom + 0.06, width * (1 - KEY_WIDTH), height - 0.06))
    axes.legend(
        handles=made.key, loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, labelcolor=colours["text"]
    )
    if place is not None and place[0] == panel:
        for colour, width in (("#ffffff", 3.0), ("#000000", 1.2)):
            axes.plot([place[1]], [place[2]], "+", color=colour, markersize=13, markeredgewidth=width)

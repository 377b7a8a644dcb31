"""The position of an experiment or a run on a map."""

from __future__ import annotations

from gradstudio.core.experiment import Experiment
from gradstudio.core.knobs import Value
from gradstudio.core.text import number
from gradstudio.session.map.axis import Axis, name_in_words, short_value
from gradstudio.session.map.journal import JournalContent
from gradstudio.session.map.map_plan import Job, Plan, Spot
from gradstudio.session.map.map_texts import ENDED
from gradstudio.session.record.run import Run


def spot_of(plan: Plan, experiment: Experiment) -> tuple[int, float, float] | None:
    """Return the panel of an experiment, and its column and row as fractions of cells, such as 3.5 for the middle of
    the fourth; None if it is not on the map."""
    if any(name not in _names(experiment) for name in _mapped_knobs(plan)):
        return None
    if plan.by and experiment[plan.by] not in plan.panels:
        return None
    across, up = (along(axis, experiment[axis.knob]) for axis in (plan.x, plan.y))
    if across is None or up is None:
        return None
    return (plan.panels.index(experiment[plan.by]) if plan.by else 0), across, up


def differing_knobs(plan: Plan, experiment: Experiment) -> list[str]:
    """Return the names of the knobs, besides the mapped ones and the seed, in which an experiment differs from the
    cells of a map, and of those that only one of the two has."""
    free = {*_mapped_knobs(plan), "run.seed"}
    there = {knob.name: value for knob, value in plan.experiment.items()}
    missing = [name for name in there if name not in _names(experiment)]
    return missing + [
        knob.name for knob, value in experiment.items() if knob.name not in free and there.get(knob.name) != value
    ]


def knobs_in_words(plan: Plan, experiment: Experiment) -> str:
    """Return the values of the mapped knobs, as far as an experiment has them: "learning rate 0.1"."""
    names = _names(experiment)
    return ", ".join(
        f"{name_in_words(name)} {short_value(experiment[name])}" for name in _mapped_knobs(plan) if name in names
    )


def knobs_place(plan: Plan, experiment: Experiment) -> str:
    """Return the position of the current knobs on a map, as sentences."""
    here = knobs_in_words(plan, experiment)
    if spot_of(plan, experiment) is None:
        return f"The knobs as they are set ({here}) lie outside of this map."
    if others := differing_knobs(plan, experiment):
        return f"The dashed cross is where {here} lies. Other knobs differ from those of this map: {_some(others, 3)}."
    return f"The cross is where the knobs are set: {here}. It can be dragged."


def place_in_words(run: Run, stored: JournalContent) -> str:
    """Return the position of a run on a map, as a sentence; if it is one of its cells, whether both have the same last
    loss."""
    plan, place = stored.plan, spot_of(stored.plan, run.experiment)
    here = knobs_in_words(plan, run.experiment)
    if others := differing_knobs(plan, run.experiment):
        return f"This run ({here}) is not one of this map: it differs in {_some(others, 4)}."
    if place is None:
        return f"This run ({here}) lies outside of the map."
    job = job_of(plan, run.experiment)
    cell = stored.results.get(job) if job else None
    if cell is None:
        return (
            f"This run ({here}) lies where the cross is. No cell with exactly these values and this seed was trained."
        )
    text = f"This run ({here}) is the cell at the cross, which {ENDED[cell.outcome]}"
    if not 0 <= cell.step < len(run.history):
        return f"{text}."
    loss = run.history.value("loss", cell.step)
    agrees = "the same to the last bit" if repr(loss) == repr(cell.loss) else f"{number(loss)} here"
    return f"{text} with a loss of {number(cell.loss)} at step {cell.step:,}: {agrees}."


def _mapped_knobs(plan: Plan) -> list[str]:
    return [plan.x.knob, plan.y.knob, *([plan.by] if plan.by else [])]


def _some(names: list[str], most: int) -> str:
    """Return the first of some names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _names(experiment: Experiment) -> set[str]:
    return {knob.name for knob, _ in experiment.items()}


def job_of(plan: Plan, experiment: Experiment) -> Job | None:
    """Return the cell and the seed whose mapped knobs an experiment has; None if it is between cells, or off the
    map."""
    if (place := spot_of(plan, experiment)) is None:
        return None
    job = Job(Spot(place[0], int(place[1]), int(place[2])), experiment.run.seed - plan.experiment.run.seed)
    if not 0 <= job.seed < plan.seeds:
        return None
    return job if all(experiment[name] == value for name, value in plan.values_at(job.spot).items()) else None


def along(axis: Axis, value: Value) -> float | None:
    """Return the position of a value on an axis, in cells from its beginning; None if it is outside."""
    import numpy as np

    values = np.array(axis.values, float)
    if not isinstance(value, int | float) or not values[0] <= value <= values[-1]:
        return None
    scale = np.log if axis.log else np.asarray
    return float(np.interp(scale(value), scale(values), np.arange(len(values)))) + 0.5

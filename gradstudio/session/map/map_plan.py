"""The plan of a map: the experiment, its axes and its seeds, and the experiment of each cell."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from gradstudio.core import presets, ranks_allowed
from gradstudio.core.events import Change
from gradstudio.core.experiment import Experiment
from gradstudio.core.knobs import KnobError, Value, format_value
from gradstudio.core.presets import Preset
from gradstudio.session.map.axis import SEED, Axis, name_in_words, read_axis, short_value

MOST_CELLS = 1_000_000
MOST_SEEDS = 100
MOST_PANELS = 12


class Spot(NamedTuple):
    """A cell of the map: its panel, its column (x) and its row (y), each from 0."""

    panel: int
    column: int
    row: int


class Job(NamedTuple):
    """A cell with one of its seeds, counted from 0: one run."""

    spot: Spot
    seed: int


class PlanError(ValueError):
    """A stored plan that is not in this program's format."""


@dataclass(frozen=True)
class Plan:
    """The plan of a map. `preset` contains the experiment and its timeline. `by` names a third knob, each value of
    which has its own panel; without it there is one panel. `full`: every cell is trained, not only those whose
    neighbours differ."""

    preset: Preset
    x: Axis
    y: Axis
    by: str = ""
    panels: tuple[Value, ...] = ()
    seeds: int = 1
    full: bool = False

    @property
    def experiment(self) -> Experiment:
        return self.preset.experiment

    @property
    def timeline(self) -> tuple[Change, ...]:
        return self.preset.timeline

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return the number of panels, of rows and of columns."""
        return max(len(self.panels), 1), len(self.y.values), len(self.x.values)

    @property
    def cells(self) -> int:
        return math.prod(self.shape)

    @property
    def of_panels(self) -> list[Experiment]:
        """The experiment of each panel."""
        return [self.experiment.with_value(self.by, value) for value in self.panels] or [self.experiment]

    def values_at(self, spot: Spot) -> dict[str, Value]:
        """Return the values of the mapped knobs in a cell."""
        third = {self.by: self.panels[spot.panel]} if self.by else {}
        return {self.x.knob: self.x.values[spot.column], self.y.knob: self.y.values[spot.row], **third}

    def values_in_words(self, spot: Spot) -> str:
        """Return the values of a cell in words: "learning rate 4.3, max norm 0.81"."""
        among = {self.x.knob: self.x.values, self.y.knob: self.y.values}
        values = self.values_at(spot).items()
        return ", ".join(f"{name_in_words(name)} {short_value(value, among.get(name, ()))}" for name, value in values)

    def experiment_of(self, job: Job) -> Experiment:
        """Return the experiment of a cell with one of its seeds; KnobError if its values do not go together."""
        seed = {"run.seed": self.experiment.run.seed + job.seed} if job.seed else {}
        return self.experiment.with_values({**self.values_at(job.spot), **seed})

    def preset_of(self, job: Job) -> Preset:
        """Return a cell as a preset, to be opened as a run of its own."""
        values = self.values_in_words(job.spot)
        room = presets.LONGEST_TITLE - len(values) - 2
        title = f"{self.preset.title[: max(room, 10)]}: {values}"[: presets.LONGEST_TITLE]
        return self.preset.model_copy(
            update={
                "title": title,
                "experiment": self.experiment_of(job),
                "promise": None,
                "bundled": False,
                "path": None,
            }
        )

    def check(self) -> None:
        """Raise KnobError for an impossible plan, or one with an axis that has no effect."""
        ranks_allowed.check_alone(self.experiment, "no map is made")
        if "distributed.ranks" in (self.x.knob, self.y.knob, self.by):
            raise KnobError("distributed.ranks is not mapped: each cell is trained in one process")
        if self.x.knob == self.y.knob or self.by in (self.x.knob, self.y.knob):
            raise KnobError(f"{self.by or self.x.knob} is mapped twice; allowed: different knobs")
        if not 1 <= self.seeds <= MOST_SEEDS:
            raise KnobError(f"--seeds {self.seeds} is not allowed; allowed: a whole number from 1 to {MOST_SEEDS}")
        self.experiment.with_value("run.seed", self.experiment.run.seed + self.seeds - 1)
        if len(self.panels) > MOST_PANELS:
            raise KnobError(f"{len(self.panels)} panels are not allowed; allowed: at most {MOST_PANELS}")
        if self.cells > MOST_CELLS:
            raise KnobError(f"{self.cells:,} cells are not allowed; allowed: at most {MOST_CELLS:,}")
        changed = [{self.by: value} for value in self.panels] or [{}]
        for axis in (self.x, self.y):
            if not any(self.experiment.applies(axis.knob, values) for values in changed):
                raise KnobError(f"{axis.knob} has no effect here{_needs(axis.knob, self.experiment)}")

    def as_json(self) -> dict[str, Any]:
        """Return the plan as plain data for `from_json`."""
        axes = {
            name: {"knob": axis.knob, "values": list(axis.values), "log": axis.log}
            for name, axis in (("x", self.x), ("y", self.y))
        }
        third = {"by": self.by, "panels": list(self.panels)}
        return {"preset": presets.to_toml(self.preset), **axes, **third, "seeds": self.seeds, "full": self.full}


def read_plan(
    preset: Preset, x: str, y: str, cells: int, by: str, seeds: int, *, full: bool, before: str = "--"
) -> Plan:
    """Return the plan given by these texts, in the format of the options of `gradstudio map`; KnobError if it is
    impossible. `before` precedes an option's name in an error."""
    experiment = preset.experiment
    third, panels = _read_panels(f"{before}by", by, experiment) if by else ("", ())
    across, up = (read_axis(f"{before}{name}", text, cells, experiment) for name, text in (("x", x), ("y", y)))
    plan = Plan(preset, across, up, third, panels, seeds, full)
    plan.check()
    return plan


def from_json(content: Any, path: Path) -> Plan:
    """Return the plan that `as_json` wrote; PlanError for anything else."""
    try:
        preset = presets.parse(content["preset"], path)
        axes = [_axis(content[name], preset.experiment) for name in ("x", "y")]
        panels = tuple(_value(value) for value in content["panels"])
        by, seeds, full = content["by"], content["seeds"], content["full"]
        if type(seeds) is not int or type(full) is not bool or bool(by) != bool(panels):
            raise PlanError("its seeds, its panels or its kind of grid")
        plan = Plan(preset, axes[0], axes[1], by, panels, seeds, full)
        plan.check()
        for value in panels:
            preset.experiment.with_value(by, value)
    except (KeyError, TypeError, ValueError) as fault:
        raise PlanError(str(fault)[:200]) from None
    return plan


def difference(stored: Plan, asked: Plan) -> str:
    """Return how a stored plan differs from the requested one, in a few words; "" if they are equal."""
    for name, one, other in (
        ("x is", stored.x.label, asked.x.label),
        ("y is", stored.y.label, asked.y.label),
        ("the cells of an axis are", str(stored.shape[1:]), str(asked.shape[1:])),
        ("the panels are", f"{stored.by} {stored.panels}", f"{asked.by} {asked.panels}"),
        ("the seeds a cell are", str(stored.seeds), str(asked.seeds)),
        ("the full grid is", str(stored.full), str(asked.full)),
    ):
        if one != other:
            return f"{name} {one} there, {other} here"
    if stored.x != asked.x or stored.y != asked.y:
        return "the values of an axis differ"
    here = {knob.name: value for knob, value in asked.experiment.items()}
    for knob, value in stored.experiment.items():
        if here.get(knob.name, value) != value:
            return f"{knob.name} is {format_value(value)} there, {format_value(here[knob.name])} here"
    if stored.experiment != asked.experiment:
        return "the studio file is another"
    return "" if stored.timeline == asked.timeline else "the timeline is another"


def _read_panels(option: str, text: str, experiment: Experiment) -> tuple[str, tuple[Value, ...]]:
    name, equals, rest = text.partition("=")
    if not equals:
        raise KnobError(
            f"{option} {text[:80]} is not allowed; allowed: KNOB=VALUE,VALUE, such as clipping.kind=none,norm"
        )
    knob = experiment.find_knob(name.strip())
    if knob.name == SEED:
        raise KnobError(f"{option} {SEED} is not allowed; --seeds trains each cell with several seeds")
    values = tuple(dict.fromkeys(knob.parse(part) for part in rest.split(",")))
    for value in values:
        experiment.with_value(knob.name, value)
    return knob.name, values


def _needs(name: str, experiment: Experiment) -> str:
    """Return what would give the knob an effect, as the end of a sentence."""
    for condition in experiment.find_knob(name).when:
        return "; it needs " + " and ".join(
            f"{other} = {' or '.join(format_value(value) for value in values)}" for other, values in condition.items()
        )
    return ""


def _axis(content: Any, experiment: Experiment) -> Axis:
    values = tuple(_value(value) for value in content["values"])
    numbers = all(type(value) in (int, float) and math.isfinite(value) for value in values)
    if not numbers or len(values) < 2 or list(values) != sorted(set(values)) or type(content["log"]) is not bool:
        raise PlanError("an axis has no rising values")
    if content["log"] and values[0] <= 0:
        raise PlanError("a logarithmic axis begins at 0 or below")
    for value in (values[0], values[-1]):
        experiment.with_value(content["knob"], value)
    return Axis(content["knob"], values, content["log"])


def _value(content: Any) -> Any:
    if not isinstance(content, bool | int | float | str):
        raise PlanError("a value is no value of a knob")
    return content

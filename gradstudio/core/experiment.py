"""An experiment: one value for each knob that `core/sections/` declares."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from gradstudio.core import combinations, ranks_allowed
from gradstudio.core.knobs import Knob, KnobError, Value, format_value, of_today, read_knobs
from gradstudio.core.sections.loop_knobs import (
    Accumulation,
    Clipping,
    Gradients,
    Mistakes,
    Optimizer,
    Precision,
    Schedule,
)
from gradstudio.core.sections.place_knobs import Distributed, Run
from gradstudio.core.sections.task_knobs import Loss, Model, Problem
from gradstudio.core.studio_file import SECTION, StudioFile
from gradstudio.core.text import LONGEST_LINE

TITLES = {
    "clipping": "Clipping",
    "accumulation": "Accumulation",
    "precision": "Precision",
    "schedule": "Warmup and schedule",
    "optimizer": "Optimizer",
    "model": "Model",
    "problem": "Problem",
    "gradients": "Gradients",
    "loss": "Loss",
    "mistakes": "Mistakes",
    "distributed": "Ranks",
    "run": "Run",
    SECTION: "Model file",
}

# Defined by a studio file: these knobs then have no effect, and keep their defaults.
BROUGHT = frozenset(
    {
        "model.kind", "model.depth", "model.width", "model.activation", "model.norm", "model.norm_position",
        "model.residual", "model.checkpointing", "problem.task", "problem.seq_len", "problem.scaling",
        "problem.input_scale", "loss.kind", "loss.eps", "loss.z_loss", "model.norm_momentum", "model.qk_norm",
        "model.residual_scaling", "model.parametrization", "model.base_width",
        "problem.label_noise", "problem.imbalance", "loss.class_weights", "problem.baseline",
        "optimizer.discriminator_factor", "loss.ratio_limit", "loss.kl_penalty", "loss.entropy_bonus",
        "problem.normalize", "problem.samples", "problem.passes", "problem.reward_flaw", "clipping.qk_clip",
    }
)  # fmt: skip
# Values that require knowledge of the layers of a network, which a studio file does not declare.
NOT_BESIDE_A_FILE: Mapping[str, tuple[Value, ...]] = {"model.init": ("lsuv",), "clipping.kind": ("per_example",)}


class Experiment(BaseModel):
    """One value for every knob, and the studio file whose model, data and loss are trained, if there is one. The
    sections are in the order in which people use them."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=())  # 2.7 warned of model_

    clipping: Clipping = Clipping()
    accumulation: Accumulation = Accumulation()
    precision: Precision = Precision()
    schedule: Schedule = Schedule()
    optimizer: Optimizer = Optimizer()
    model: Model = Model()
    problem: Problem = Problem()
    gradients: Gradients = Gradients()
    loss: Loss = Loss()
    mistakes: Mistakes = Mistakes()
    distributed: Distributed = Distributed()
    run: Run = Run()
    model_file: dict[str, Value] = {}  # knobs of the studio file that differ from their defaults
    studio_file: StudioFile | None = None

    @model_validator(mode="before")
    @classmethod
    def _knobs_of_the_file(cls, given: Any) -> Any:
        """Check the knobs of a studio file, which only the file declares."""
        values = given.get(SECTION) if isinstance(given, dict) else None
        if not values:
            return given
        if not isinstance(values, dict):
            raise KnobError(_no_section(SECTION))
        file = given.get("studio_file")
        if file is None:
            raise KnobError(_unknown(f"{SECTION}.{next(iter(values))}"))
        if not isinstance(file, StudioFile):
            try:
                file = StudioFile.model_validate(file)
            except ValidationError:
                return given  # the file is checked separately, and its own error is reported
        return {**given, "studio_file": file, SECTION: file.values(values)}

    @model_validator(mode="after")
    def _values_that_go_together(self) -> Experiment:
        self._check_beside_a_file()
        problem, model = self.problem, self.model
        combinations.check(
            task=problem.task, seq_len=problem.seq_len, batch_size=problem.batch_size, model=model.kind,
            norm=model.norm, loss=self.loss.kind, residual_scaling=model.residual_scaling,
            optimizer=self.optimizer.kind, parametrization=model.parametrization, samples=problem.samples,
            qk_clip=self.clipping.qk_clip,
        )  # fmt: skip
        if self.clipping.kind == "per_example" and self.studio_file is None:
            scaled = self.applies("precision.scaling") and self.precision.scaling != "none"
            combinations.check_each_example(problem.batch_size, scaled=scaled, mistaken=self.mistakes != Mistakes())
        ranks_allowed.check(self, with_file=self.studio_file is not None)
        device = self.run.device
        if device not in ("auto", "cpu", "cuda", "mps") and not re.fullmatch("cuda:[0-9]{1,3}", device):
            raise KnobError(
                f"run.device = {device[:60]} is not allowed; allowed: auto, cpu, cuda, cuda:N, mps (default auto)"
            )
        return self

    def _check_beside_a_file(self) -> None:
        """Raise KnobError for a value that has no effect beside a studio file."""
        if self.studio_file is None:
            return
        for name in sorted(BROUGHT):
            if self[name] != KNOBS[name].default:
                raise KnobError(
                    f"{name} = {format_value(self[name])} is not allowed with the studio file {self.studio_file.name}, "
                    f"which brings its own {WHAT_IT_BRINGS[KNOBS[name].section]}"
                )
        for name, values in NOT_BESIDE_A_FILE.items():
            if self[name] in values:
                others = ", ".join(choice for choice in KNOBS[name].choices if choice not in values)
                raise KnobError(
                    f"{name} = {format_value(self[name])} is not allowed with the studio file {self.studio_file.name}; "
                    f"allowed: {others}"
                )

    def __getitem__(self, name: str) -> Value:
        """Return the value of the knob with this dotted name; KnobError for an unknown name."""
        entry = self.find_knob(name)
        if entry.section == SECTION:
            return self.model_file.get(entry.field, entry.default)
        return getattr(getattr(self, entry.section), entry.field)

    def find_knob(self, name: str) -> Knob:
        """Return the knob with this dotted name, including those of the studio file; KnobError if there is none."""
        if self.studio_file is not None and str(name).startswith(f"{SECTION}."):
            return self.studio_file.knob(name)
        return find_knob(name)

    def items(self) -> Iterator[tuple[Knob, Value]]:
        section, values = "", None
        for entry in KNOBS.values():  # section by section, as this is called at each refresh of the window
            if entry.section != section:
                section, values = entry.section, getattr(self, entry.section)
            yield entry, getattr(values, entry.field)
        for entry in self.studio_file.knobs.values() if self.studio_file else ():
            yield entry, self[entry.name]

    def with_value(self, name: str, value: Value) -> Experiment:
        """Return a copy with one knob changed; KnobError if the name or the value is not allowed."""
        return self.with_values({name: value})

    def with_values(self, values: Mapping[str, Value]) -> Experiment:
        """Return a copy with these knobs changed at once, for values that are only valid together."""
        sections = self.model_dump(exclude={"studio_file"})
        for name, value in values.items():
            entry = self.find_knob(name)
            sections[entry.section][entry.field] = value
        return experiment_from({**sections, "studio_file": self.studio_file})

    def with_checked(self, name: str, value: Value) -> Experiment:
        """Return a copy with one knob changed to a checked value. Checking takes as long as a small step."""
        entry = self.find_knob(name)
        section = getattr(self, entry.section).model_copy(update={entry.field: value})
        return self.model_copy(update={entry.section: section})

    def with_texts(self, assignments: list[str]) -> Experiment:
        """Return a copy with `knob=value` assignments applied, as written on a command line."""
        return self.with_values(dict(parse_assignment(text, self) for text in assignments))

    def changed_knobs(self) -> dict[str, Value]:
        """Return the knobs that differ from their default."""
        return {entry.name: value for entry, value in self.items() if value != entry.default}

    def applies(self, name: str, changed: Mapping[str, Value] | None = None) -> bool:
        """Return whether the knob has an effect, given the other values, of which `changed` overrides some."""
        when, given = self.find_knob(name).when, changed or {}
        if self.studio_file is not None and name in BROUGHT:
            return False
        return not when or any(
            all((given[other] if other in given else self[other]) in values for other, values in condition.items())
            for condition in when
        )


KNOBS: dict[str, Knob] = read_knobs(Experiment, TITLES)


def differing_values(before: Experiment, after: Experiment) -> dict[str, Value]:
    """Return the knobs that differ, with their new values; for two studio files, only those that both have."""
    if before is after:
        return {}
    values = {knob.name: value for knob, value in before.items()}
    return {knob.name: value for knob, value in after.items() if values.get(knob.name, value) != value}


def find_knob(name: str) -> Knob:
    """Return the knob with this dotted name; KnobError suggests the closest one if there is none."""
    try:
        return KNOBS[name]
    except (KeyError, TypeError):
        raise KnobError(_unknown(str(name))) from None


def check_passed(experiment: Experiment, passed: int) -> None:
    """Raise KnobError if problem.skip_batches falls below the number of batches already skipped."""
    knob, value = KNOBS["problem.skip_batches"], experiment.problem.skip_batches
    if value < passed:
        were = "batch was" if passed == 1 else "batches were"
        raise KnobError(
            f"{knob.name} = {value} is not allowed, for it cannot fall: {passed} {were} skipped already; "
            f"allowed: at least {passed}, at most {knob.maximum:.12g}"
        )


def parse_assignment(text: str, experiment: Experiment | None = None) -> tuple[str, Value]:
    """Return the name and the value in 'clipping.kind=norm'; the range of the value is not checked. Only its
    `experiment` knows the knobs of a studio file."""
    name, equals, value = text.partition("=")
    if not equals:
        raise KnobError(f"{text[:60]!r} is not allowed; allowed: knob=value, such as clipping.kind=norm")
    entry = (experiment.find_knob if experiment else find_knob)(name.strip())
    return entry.name, of_today(entry.name, entry.parse(value))


def experiment_from(sections: Mapping[str, object]) -> Experiment:
    """Return an Experiment from nested plain data, fully validated; KnobError with one line for the first error."""
    try:
        return Experiment.model_validate(sections)
    except ValidationError as fault:
        explained = _explain(fault)
    raise explained  # not above: pydantic's error refers to this one, and would then stay its context forever


def _explain(fault: ValidationError) -> KnobError:
    first = fault.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return KnobError(_unknown(where))
    if where in KNOBS:
        return KNOBS[where].error(first["input"])
    if where in TITLES:
        return KnobError(_no_section(where))
    if where.startswith("studio_file.") and "error" not in first.get("ctx", {}):
        return KnobError(f"{where} is not allowed; {first['msg'].lower()}")
    return first.get("ctx", {}).get("error") or KnobError(first["msg"])


_AND_MORE = 40  # letters of an error that remain for its beginning on a terminal, and for "and 9 more"
WHAT_IT_BRINGS = {"model": "model", "clipping": "model", "optimizer": "model", "problem": "data", "loss": "loss"}


def _no_section(name: str) -> str:
    return f"{name} must be a section with knobs in it, such as [{name}]"


def _unknown(name: str) -> str:
    name = name if len(name) <= 60 else name[:57] + "..."
    section = name.partition(".")[0]
    if section == SECTION:
        return f"unknown knob {name}; the section {SECTION} has knobs beside a studio file only"
    if section not in TITLES:
        known = ", ".join(title for title in TITLES if title != SECTION)
        if "." not in name and (near := difflib.get_close_matches(section, TITLES, n=1, cutoff=0.7)):
            return f"unknown section {section}; did you mean {near[0]}?"
        close = difflib.get_close_matches(name, KNOBS, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]}?" if close else f"sections are: {known}"
        return f"unknown knob {name}; {hint}"
    fields = [entry.field for entry in KNOBS.values() if entry.section == section]
    close = difflib.get_close_matches(name, KNOBS, n=1, cutoff=0.6)
    hint = f"did you mean {close[0]}? " if close else ""
    text = f"unknown knob {name}; {hint}{section} has: "
    named = fields  # as many as an error has room for
    while len(text) + len(", ".join(named)) > LONGEST_LINE - _AND_MORE:
        named = named[:-1]
    more = len(fields) - len(named)
    return f"{text}{', '.join(named)}{f' and {more} more' if more else ''}"

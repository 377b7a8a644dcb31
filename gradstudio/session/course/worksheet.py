"""A worksheet: a student's answers to an exercise, with the runs that they were read off. It is a TOML file; handing it
in adds what the runs were, so that somebody else can train them again."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import tomli_w
from pydantic import BaseModel, Field, ValidationError

from gradstudio.core import strict_toml
from gradstudio.core.events import Change
from gradstudio.core.exercise import MOST_RUNS, Exercise, ExerciseRun, Name, told
from gradstudio.core.experiment import differing
from gradstudio.core.knobs import Value, format_value
from gradstudio.core.lesson import TABLE
from gradstudio.core.strict_toml import TomlError
from gradstudio.core.text import clean, one_line
from gradstudio.session.record.run import Run

LARGEST = 200_000  # bytes of a worksheet
LONGEST_ANSWER, LONGEST_NAME = 4_000, 80
MOST_CHANGES = 200  # of a run
BEGINNING = 20  # first losses that another processor must repeat, before rounding has grown
# What the digest is of: what a step gave, and not how long it took.
DIGESTED = ("loss", "grad_norm", "clipped_norm", "update_ratio", "weight_norm", "scale", "skipped")
SEEDS = 9000  # seeds that are given out, from 1000 on

Answer = Annotated[str, Field(max_length=LONGEST_ANSWER)]
Sheet = TypeVar("Sheet", bound=BaseModel)
Number = float | Literal["nan", "inf", "-inf"] | None
Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)]  # Python writes no integer of thousands of digits


class WorksheetError(ValueError):
    """A worksheet that cannot be read or handed in. One line: which file, where, what is allowed."""


class _Part(BaseModel):
    model_config = TABLE


class ChangeMade(_Part):
    step: Annotated[int, Field(ge=0, le=100_000_000)]
    knob: Annotated[str, Field(max_length=80)]
    value: bool | Whole | float | Annotated[str, Field(max_length=80)]


class Evidence(_Part):
    """What a run was. `digest`: SHA-256 of DIGESTED over all steps, as little-endian float64; `beginning`: its first
    losses."""

    name: Name
    run: Annotated[str, Field(max_length=200)]
    knobs: Annotated[dict[str, bool | Whole | float | str], Field(max_length=200)] = {}
    changes: Annotated[list[ChangeMade], Field(max_length=MOST_CHANGES)] = []
    outcome: Literal["finished", "nonfinite", "failed"]
    steps: Annotated[int, Field(ge=0, le=100_000_000)]
    nonfinite_step: Whole = -1  # none
    final_loss: Number = None
    accuracy: Number = None
    beginning: Annotated[list[Number], Field(max_length=BEGINNING)] = []
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    torch: Annotated[str, Field(max_length=80)] = ""
    processor: Annotated[str, Field(max_length=200)] = ""
    threads: Annotated[str, Field(max_length=10)] = ""


class HandedIn(_Part):
    seal: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    run: Annotated[list[Evidence], Field(max_length=MOST_RUNS)]


class Worksheet(_Part):
    schema_: Literal[1] = Field(alias="schema")
    exercise: Annotated[str, Field(max_length=80)]
    name: Annotated[str, Field(max_length=LONGEST_NAME)]
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)]
    answers: dict[str, Answer] = {}
    runs: dict[str, Annotated[str, Field(max_length=200)]] = {}
    handed_in: HandedIn | None = None

    @property
    def what(self) -> str:
        """What it is a sheet of, in words."""
        return f"exercise {self.exercise}"

    def sealed(self, evidence: Sequence[Evidence]) -> Worksheet:
        """Return the worksheet with what its runs were."""
        found = self.model_copy(update={"handed_in": HandedIn(seal="0" * 64, run=list(evidence))})
        return found.model_copy(update={"handed_in": HandedIn(seal=found.seal(), run=list(evidence))})

    def seal(self) -> str:
        """Return the digest of all that it says, but for the seal itself. It tells a slip of the editor, and not a
        forger, who can work it out too: that is what training again is for."""
        table = self.model_dump(by_alias=True, exclude_none=True)
        table.get("handed_in", {}).pop("seal", None)
        return hashlib.sha256(tomli_w.dumps(table).encode()).hexdigest()

    def to_toml(self) -> str:
        return tomli_w.dumps(self.model_dump(by_alias=True, exclude_none=True), multiline_strings=True)


def seed_of(name: str) -> int:
    """Return the seed of somebody's runs, so that two people's differ."""
    return 1000 + int.from_bytes(hashlib.sha256(clean(name).encode()).digest()[:4], "big") % SEEDS


def blank(exercise: Exercise, name: str) -> str:
    """Return an empty worksheet for somebody, as text."""
    seed = seed_of(name)
    lines = [
        f"# {exercise.title}. {exercise.text}".strip(), "schema = 1", f"exercise = {quoted(exercise.id)}",
        f"name = {quoted(clean(name))}", f"seed = {seed}  # your own: set run.seed to it before each run", "",
        "[answers]",
    ]  # fmt: skip
    for place, question in enumerate(exercise.question, 1):
        lines += [f"# {place}. {question.text}" + (f" (run {question.run})" if question.judged else "")]
        letters = zip("ABCDEF", question.predict, strict=False)
        lines += [f"#    {letter}: {choice.text}" for letter, choice in letters]
        lines += [f'q{place} = ""', ""]
    lines += ["[runs]  # the id of each; left empty, the latest run of your library that fits is taken"]
    for run in exercise.run:
        knobs = " ".join([f"--preset {run.preset}", *run.knobs, f"run.seed={seed}"])
        lines += [f"# {run.text} ({knobs}{'; then, in mid-run, ' + ' '.join(run.then) if run.then else ''})"]
        lines += [f'{run.name} = ""', ""]
    return "\n".join(one_line(line) if line.startswith("#") else line for line in lines) + "\n"


def quoted(text: str) -> str:
    return tomli_w.dumps({"x": text}).partition("= ")[2].strip()


def read(path: Path) -> Worksheet:
    """Return the worksheet in a file; WorksheetError where it is none."""
    return read_as(Worksheet, path)


def read_as(kind: type[Sheet], path: Path) -> Sheet:
    """Return a sheet of this kind; WorksheetError names the first thing that is wrong."""
    try:
        if path.stat().st_size > LARGEST:
            raise WorksheetError(f"{path}: larger than {LARGEST // 1000} kB, which is the most that is read")
        return kind.model_validate(strict_toml.parse(strict_toml.read(path)))
    except (OSError, TomlError) as fault:
        raise WorksheetError(f"{path}{fault if isinstance(fault, TomlError) else ': cannot be read'}") from None
    except ValidationError as fault:
        raise WorksheetError(f"{path}: {told(fault)}") from None


def why_not(run: Run, asked: ExerciseRun, seed: int) -> str:
    """Return why a run is not the one that an exercise asks for, as half a sentence; "" where it is."""
    if run.watched is not None:
        return "was watched, and not trained by the studio"
    if run.status not in ("finished", "nonfinite", "failed"):
        return f"has not ended by itself ({run.status})"
    differs = differing(asked.starts_with(seed), run.experiment)
    differs.pop("run.device", None)
    if differs:
        return f"has {', '.join(f'{name} = {format_value(value)}' for name, value in sorted(differs.items())[:3])}"
    own = own_changes(run, asked)
    made = {change.knob: change.value for change in own}
    if made != asked.changes or len(own) > len(made):
        wanted = ", ".join(f"{name} = {format_value(value)}" for name, value in asked.changes.items())
        once = " once" if made == asked.changes else ""
        return f"was to be changed{once} while it trained: {wanted}" if wanted else "was changed while it trained"
    if asked.outcome is not None and run.status != asked.outcome:
        return f"ended as {run.status}, and {asked.outcome} was wanted"
    return ""


def own_changes(run: Run, asked: ExerciseRun) -> list[Change]:
    """Return the changes that a person made while it trained."""
    planned = {(change.step, change.knob, change.value) for change in asked.beginning().timeline}
    return [change for change in run.timeline if (change.step, change.knob, change.value) not in planned]


def evidence_of(run: Run, asked: ExerciseRun) -> Evidence:
    """Return what is kept of a run of an exercise."""
    made = [ChangeMade(step=change.step, knob=change.knob, value=change.value) for change in own_changes(run, asked)]
    return evidence(run, asked.name, run.experiment.changed(), made)


def evidence(run: Run, name: str, knobs: Mapping[str, Value], made: Sequence[ChangeMade] = ()) -> Evidence:
    """Return what is kept of a run that has ended, with the knobs that are told of it."""
    history, facts = run.history, run.environment
    return Evidence(
        name=name, run=run.id, knobs=dict(knobs), changes=list(made),
        outcome=run.status if run.status in ("finished", "nonfinite") else "failed",
        steps=len(history), nonfinite_step=-1 if run.first_nonfinite_step is None else run.first_nonfinite_step,
        final_loss=number(history.value("loss", len(history) - 1)) if len(history) else None,
        accuracy=None if run.accuracy is None else number(run.accuracy),
        beginning=[number(loss) for loss in history.column("loss", 0, BEGINNING).tolist()], digest=digest(run),
        torch=clean(facts.get("torch", "")), processor=clean(facts.get("processor", "")),
        threads=clean(facts.get("threads", "")),
    )  # fmt: skip


def digest(run: Run) -> str:
    """Return the SHA-256 of what the steps gave: the columns DIGESTED, one after the other, every NaN as the same."""
    found = hashlib.sha256()
    for name in DIGESTED:
        values = np.array(run.history.column(name), "<f8")
        values[np.isnan(values)] = np.nan
        found.update(values.tobytes())
    return found.hexdigest()


def number(value: float) -> Number:
    """Return a number as a worksheet has it: NaN and Inf as words."""
    if math.isfinite(value):
        return float(value)
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


def hand_in(
    sheet: Worksheet, exercise: Exercise, find: Callable[[ExerciseRun, str], Run]
) -> tuple[Worksheet, dict[str, Run]]:
    """Return the worksheet with what its runs were, and the runs by name. `find(asked, id)` returns a run of the
    student's library."""
    _check_names(sheet, exercise)
    runs = {asked.name: find(asked, sheet.runs.get(asked.name, "")) for asked in exercise.run}
    return sheet.sealed([evidence_of(runs[asked.name], asked) for asked in exercise.run]), runs


def _check_names(sheet: Worksheet, exercise: Exercise) -> None:
    allowed: Mapping[str, Any] = {
        "answers": [f"q{place}" for place in range(1, len(exercise.question) + 1)],
        "runs": [run.name for run in exercise.run],
    }
    for table, names in allowed.items():
        for name in getattr(sheet, table):
            if name not in names:
                raise WorksheetError(f"{table}.{name[:40]}: {exercise.id} has no such; allowed: {', '.join(names)}")

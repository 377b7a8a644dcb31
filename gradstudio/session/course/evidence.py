"""The record of a run on a sheet, so that it can be trained again, and whether it then repeats."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field

from gradstudio.core import strict_json
from gradstudio.core.exercise import Name
from gradstudio.core.knobs import Value
from gradstudio.core.lesson import Part
from gradstudio.core.text import clean
from gradstudio.session.record.run import Run

MOST_CHANGES = 200  # of a run
BEGINNING = 20  # first losses that another processor must reproduce, before rounding has grown
# The digest covers the results of a step, and not how long it took.
DIGESTED = ("loss", "grad_norm", "clipped_norm", "update_ratio", "weight_norm", "scale", "skipped")
# On another processor, or with another torch, a run differs in its last bits, and these differences grow. Its first
# losses and its end must still be alike.
NEAR = 1e-3  # relative difference of the first losses
NEAR_AT_THE_END = 0.1  # difference of the test accuracy
MACHINE = ("torch", "processor", "threads")
CLAIMS = ("outcome", "steps", "nonfinite_step", "final_loss", "accuracy", "beginning", "knobs")

Number = strict_json.Number | None
Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)]  # Python refuses to format an integer of thousands of digits


class ChangeMade(Part):
    step: Annotated[int, Field(ge=0, le=100_000_000)]
    knob: Annotated[str, Field(max_length=80)]
    value: bool | Whole | float | Annotated[str, Field(max_length=80)]


class Evidence(Part):
    """The record of a run. `digest`: SHA-256 of DIGESTED over all steps, as little-endian float64; `beginning`: its
    first losses."""

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


class Verdict(NamedTuple):
    """Result of training a run again. `fault`: why it does not repeat, "" if it does; `exact`: to the last bit."""

    name: str
    exact: bool
    fault: str
    run: Run


def evidence(run: Run, name: str, knobs: Mapping[str, Value], made: Sequence[ChangeMade] = ()) -> Evidence:
    """Return the record of a finished run, with the knobs to list for it."""
    history, facts = run.history, run.environment
    return Evidence(
        name=name, run=run.id, knobs=dict(knobs), changes=list(made),
        outcome=run.status if run.status in ("finished", "nonfinite") else "failed",
        steps=len(history), nonfinite_step=-1 if run.first_nonfinite_step is None else run.first_nonfinite_step,
        final_loss=strict_json.in_json(history.value("loss", len(history) - 1)) if len(history) else None,
        accuracy=None if run.accuracy is None else strict_json.in_json(run.accuracy),
        beginning=[strict_json.in_json(loss) for loss in history.column("loss", 0, BEGINNING).tolist()],
        digest=digest(run),
        **{name: clean(facts.get(name, "")) for name in MACHINE},
    )  # fmt: skip


def digest(run: Run) -> str:
    """Return the SHA-256 of the results of the steps: the columns DIGESTED, one after the other, with all NaNs
    normalized."""
    sha256 = hashlib.sha256()
    for name in DIGESTED:
        values = np.array(run.history.column(name), "<f8")
        values[np.isnan(values)] = np.nan
        sha256.update(values.tobytes())
    return sha256.hexdigest()


def verdict(evidence: Evidence, here: Evidence, run: Run) -> Verdict:
    """Return whether a run that was trained again matches the record on a sheet. `here`: its new record."""
    return Verdict(evidence.name, evidence.digest == here.digest, _why_not_repeated(evidence, here), run)


def _why_not_repeated(evidence: Evidence, here: Evidence) -> str:
    if evidence.digest == here.digest:
        wrong = [name for name in CLAIMS if getattr(evidence, name) != getattr(here, name)]
        return f"{wrong[0]} is not that of its rows" if wrong else ""
    if all(getattr(evidence, name) == getattr(here, name) for name in MACHINE):
        return "trained again on the same processor and torch, its rows are different"
    if evidence.knobs != here.knobs:
        return "its knobs are not those of the exercise"
    if evidence.outcome != here.outcome:
        return f"it ended as {evidence.outcome}, and trained again as {here.outcome}"
    if len(evidence.beginning) != len(here.beginning) or not all(map(_near, evidence.beginning, here.beginning)):
        return "its first losses are others"
    if evidence.outcome == "finished" and not _near(evidence.accuracy, here.accuracy, NEAR_AT_THE_END):
        return f"its test accuracy is {evidence.accuracy}, and trained again {here.accuracy}"
    return ""


def _near(told: object, here: object, absolute: float = 0.0) -> bool:
    if isinstance(told, float) and isinstance(here, float):
        return abs(told - here) <= max(NEAR * abs(here), absolute)
    return told == here

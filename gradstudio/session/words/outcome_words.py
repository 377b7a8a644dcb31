"""The outcome of a training: one word and one colour for each, wherever it is shown. Files and JSON store the status
itself. Green is only for healthy runs: a run that learned nothing or has a critical finding is not."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, NamedTuple

from gradstudio.core.diagnosis.finding import Severity

Tone = Literal["good", "warning", "bad", "dim", "accent"]  # colours of the theme


class Outcome(NamedTuple):
    word: str
    tone: Tone


SEVERITY_TONES: dict[Severity, Literal["bad", "warning", "dim"]] = {
    "critical": "bad",
    "warning": "warning",
    "info": "dim",
}
UNHEALTHY, LEARNS_NOTHING = "unhealthy", "learns nothing"
OUTCOMES: dict[str, Outcome] = {  # by the status of a run, the severity of its findings, or the effect of a fix
    "finished": Outcome("finished", "good"),
    UNHEALTHY: Outcome("unhealthy", "bad"),
    LEARNS_NOTHING: Outcome("learns nothing", "warning"),
    "nonfinite": Outcome("diverged", "bad"),
    "failed": Outcome("failed", "bad"),
    "interrupted": Outcome("interrupted", "warning"),
    "stopped": Outcome("stopped", "dim"),
    "paused": Outcome("paused", "accent"),
    "running": Outcome("running", "accent"),
    "starting": Outcome("running", "accent"),
    "ready": Outcome("running", "accent"),
    "learns": Outcome("learns", "good"),
    "gets worse": Outcome("gets worse", "warning"),
    "no effect": Outcome("no effect", "dim"),
    "not tried": Outcome("not tried", "dim"),
}


def outcome_key(status: str, findings: Collection[tuple[str, str]]) -> str:
    """Return the key in `OUTCOMES` for a run with this status and these findings, each by its rule and severity."""
    if status != "finished":
        return status
    if any(severity == "critical" for _, severity in findings):
        return UNHEALTHY
    return LEARNS_NOTHING if ("nothing_learned", "warning") in findings else "finished"


def outcome_of(key: str) -> Outcome:
    """Return word and colour for a key that may come from another version's library."""
    return OUTCOMES.get(key, Outcome(key, "dim"))

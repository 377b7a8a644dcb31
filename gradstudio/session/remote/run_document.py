"""A run in a message: everything except its rows, so that the other side can build the same run and continue training
it."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from gradstudio.core import presets
from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.events import Change, Event
from gradstudio.core.experiment import Experiment, differing_values
from gradstudio.core.history import History
from gradstudio.core.knobs import Value
from gradstudio.core.loop_calls import Loop
from gradstudio.core.presets import Preset
from gradstudio.core.provenance import Provenance
from gradstudio.core.row import AccumulationError, Activations, Layer, Logged, Settings
from gradstudio.core.typed_json import from_plain, to_plain
from gradstudio.session import own_model
from gradstudio.session.record.run import JoinedBatch, Run, Status
from gradstudio.session.record.watched_script import WatchedScript

# The state of a run, as it is sent: its fields by name, and their types.
FIELDS: dict[str, Any] = {
    "status": Status, "message": str, "refused": bool, "replayed": int | None, "differs_at": int | None,
    "not_compared": str, "first_nonfinite_step": int | None, "accuracy": float | None,
    "provenance": Provenance | None, "environment": dict[str, str],
}  # fmt: skip
# The constant part: fields as above.
_FIXED: dict[str, Any] = {
    "planned": tuple[Change, ...], "compare_at": tuple[int, ...], "id": str, "name": str, "started": float,
    "parent": str, "parent_step": int, "ancestors": dict[str, int], "asked": tuple[Change, ...], "seconds": float,
    "watched": WatchedScript | None,
}  # fmt: skip
# The growing lists, by owner: the run, or its history.
OF_RUN: dict[str, Any] = {"events": Event, "timeline": Change, "refusals": Event, "compared": JoinedBatch}
OF_HISTORY: dict[str, Any] = {
    "loops": tuple[int, Loop], "settings": tuple[int, Settings], "accumulated": AccumulationError,
    "activations": Activations, "unused": tuple[int, tuple[str, ...]], "logged": Logged,
}  # fmt: skip
LISTS = OF_RUN | OF_HISTORY
LAYERS = tuple[Layer, ...]
VALUES = list[tuple[str, Value]]


def list_of(run: Run, kind: str) -> list[Any]:
    """Return one of the growing lists."""
    return getattr(run if kind in OF_RUN else run.history, kind)


def document(run: Run) -> dict[str, Any]:
    """Return the run in its current state, without its rows."""
    agreed = () if own_model.needs_agreement(run.experiment) else own_model.hashes(run.experiment)
    preset = run.preset
    return {
        "preset": [preset.id, presets.to_toml(preset), preset.written_in],
        "experiment": presets.to_toml(Preset(id="run", title="", experiment=run.experiment)),
        "agreed": list(agreed),
        "layers": to_plain(run.history.layers),
        "findings": to_plain(list(run.findings.values())),
        "at_fork": to_plain(list(differing_values(run.experiment, run.at_fork).items()))
        if run.at_fork is not None
        else None,
        **{name: to_plain(getattr(run, name)) for name in (*_FIXED, *FIELDS)},
        **{kind: to_plain(list(list_of(run, kind))) for kind in LISTS},
    }


def agreed_in(said: dict[str, Any]) -> list[str]:
    """Return the hashes of what the user has agreed to run."""
    return from_plain(list[str], said["agreed"])


def run_from(said: dict[str, Any], history: History | None, parent: Run | None) -> Run:
    """Return the run of a document. `history` has its first rows, if any; the others are to follow. `parent` is the run
    that it branched from, if that is known here."""
    experiment = _experiment(from_plain(str, said["experiment"]))
    preset = _preset(*from_plain(tuple[str, str, int], said["preset"]))
    at_fork = said["at_fork"]
    history = History(from_plain(LAYERS, said["layers"])) if history is None else history
    for kind, declared in OF_HISTORY.items():
        getattr(history, kind)[:] = from_plain(list[declared], said[kind])
    findings = from_plain(list[Finding], said["findings"])
    return Run(
        preset,
        experiment,
        history=history,
        findings={finding.rule: finding for finding in findings},
        at_fork=None if at_fork is None else experiment.with_values(dict(from_plain(VALUES, at_fork))),
        branched_from=parent,
        **{name: from_plain(declared, said[name]) for name, declared in (_FIXED | FIELDS).items()},
        **{kind: from_plain(list[declared], said[kind]) for kind, declared in OF_RUN.items()},
    )


@lru_cache(maxsize=16)
def _preset(preset_id: str, text: str, written_in: int) -> Preset:
    known = {"id": preset_id, "written_in": written_in}
    return presets.parse(text, Path(preset_id + ".toml")).model_copy(update=known)


@lru_cache(maxsize=16)  # a restart sends the same again
def _experiment(text: str) -> Experiment:
    return presets.parse(text, Path("run.toml")).experiment

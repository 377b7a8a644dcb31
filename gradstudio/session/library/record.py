"""A Run as the library's values, and back."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gradstudio.core import presets
from gradstudio.core.events import Change, Event
from gradstudio.core.experiment import differing
from gradstudio.core.history import Accumulated, Activation, Activations, History, Layer, Settings
from gradstudio.core.loop_order import Loop
from gradstudio.core.presets import Preset
from gradstudio.core.provenance import Operation, Provenance
from gradstudio.core.rules import Finding
from gradstudio.session.run import JoinedBatch, Run

# What a run has lists of that only grow, each entry a line in the table `entries`: the list, and how an entry is written down.
GROWING: dict[str, tuple[Callable[[Run], Sequence[Any]], Callable[[Any], list[Any]]]] = {
    "event": (lambda run: run.events, lambda event: _values(event)),
    "refusal": (lambda run: run.refusals, lambda event: _values(event)),
    "compared": (lambda run: run.compared, list),
    "loop": (lambda run: run.history.loops, lambda loop: [loop[0], *loop[1]]),
    "settings": (lambda run: run.history.settings, lambda stretch: [stretch[0], *stretch[1]]),
    "accumulated": (lambda run: run.history.accumulated, list),
    "activations": (lambda run: run.history.activations, list),
}


# Lists whose entries may change as the run goes on, each written whole.
WHOLE: dict[str, Callable[[Run], list[list[Any]]]] = {
    "finding": lambda run: [_values(finding) for finding in list(run.findings.values())],
    "change": lambda run: [_values(change) for change in list(run.timeline)],
    "provenance": lambda run: [vars(run.provenance) | {"chain": [vars(made) for made in run.provenance.chain]}] if run.provenance else [],
    "asked": lambda run: [_values(change) for change in run.asked],
    "at_fork": lambda run: [list(pair) for pair in differing(run.experiment, run.at_fork or run.experiment).items()],
}


def fixed(run: Run) -> dict[str, Any]:
    """What stands in the table `runs` from the beginning."""
    return {
        "id": clean(run.id), "preset_id": clean(run.preset.id), "preset": clean(presets.to_toml(run.preset)),
        "experiment": clean(presets.to_toml(Preset(id=run.id, title=run.title, experiment=run.experiment))),
        "planned": dumps([_values(change) for change in run.planned]), "compare_at": dumps(list(run.compare_at)), "started": run.started,
        "parent": clean(run.parent) or None, "parent_step": run.parent_step if run.parent else None,
    }  # fmt: skip


def changing(run: Run, history: History, steps: int) -> dict[str, Any]:
    """What stands there of the run so far, of which `steps` are written."""
    return {
        "title": clean(run.title), "status": run.status, "message": clean(run.message), "refused": run.refused, "accuracy": dumps(run.accuracy),
        "seconds": run.seconds, "steps": steps, "first_nonfinite_step": run.first_nonfinite_step,
        "final_loss": dumps(history.value("loss", steps - 1) if steps else None),
        "environment": dumps(dict(run.environment)), "layers": dumps([list(layer) for layer in history.layers]),
    }  # fmt: skip


def run_from(row: Mapping[str, Any], entries: Mapping[str, list[list[Any]]], history: History) -> Run:
    """The run that was written; KeyError, ValueError or TypeError where somebody changed what was."""
    preset = presets.parse(row["preset"], Path(row["preset_id"] + ".toml"))
    known = [path for path in presets.available() if path.stem == preset.id]
    preset = preset.model_copy(update={"path": known[0] if known else None, "bundled": bool(known) and known[0].parent == presets.files.PRESETS})
    run = Run(
        preset, presets.parse(row["experiment"], Path(row["id"])).experiment, tuple(Change(*change) for change in loads(row["planned"])),
        tuple(loads(row["compare_at"])), id=row["id"], started=row["started"],
    )  # fmt: skip
    run.history = history
    run.status, run.message, run.refused = row["status"], row["message"], bool(row["refused"])
    run.accuracy, run.seconds, run.first_nonfinite_step = loads(row["accuracy"]), row["seconds"], row["first_nonfinite_step"]
    run.environment = loads(row["environment"])
    run.events = [Event(*event) for event in entries.get("event", [])]
    run.refusals = [Event(*event) for event in entries.get("refusal", [])]
    run.timeline = [Change(*change) for change in entries.get("change", [])]
    run.compared = [JoinedBatch(*comparison) for comparison in entries.get("compared", [])]
    for change in run.timeline:
        run.in_force = run.in_force.with_value(change.knob, change.value)
    if row["parent"]:
        run.parent, run.parent_step = row["parent"], min(max(int(row["parent_step"]), 0), len(history))  # rows may be damaged
        run.at_fork = run.experiment.with_values(dict(entries.get("at_fork", [])))
        run.asked = tuple(Change(*change) for change in entries.get("asked", []))
    run.name = "" if row["title"] == run.title else row["title"]
    for step, calls, *rest in entries.get("loop", []):
        history.loops.append((step, Loop(tuple(calls), *rest)))
    history.settings += [(step, Settings(*values)) for step, *values in entries.get("settings", [])]
    history.accumulated += [Accumulated(*values) for values in entries.get("accumulated", [])]
    history.activations += [Activations(step, tuple(Activation(*values) for values in layers)) for step, layers in entries.get("activations", [])]
    for found in entries.get("provenance", []):
        run.provenance = _provenance(found)
    for finding in entries.get("finding", []):
        found = Finding(*(tuple(value) if isinstance(value, list) else value for value in finding))
        run.findings[found.rule] = found
    return run


def _provenance(found: dict[str, Any]) -> Provenance:
    chain = tuple(Operation(**made) for made in found["chain"])
    growth = tuple((str(place), float(value)) for place, value in found["growth"])
    return Provenance(**{**found, "chain": chain, "growth": growth, "layers": tuple(found["layers"])})


def layers_from(text: str) -> tuple[Layer, ...]:
    return tuple(Layer(*layer) for layer in loads(text))


def dumps(value: Any) -> str:
    """JSON in which NaN and Inf are {"float": "nan"}."""
    return clean(json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False))


def clean(text: str) -> str:
    """The text as UTF-8 can have it: what was a file name in another encoding is written out."""
    return text.encode("utf-8", "backslashreplace").decode()


def loads(text: str) -> Any:
    return json.loads(text, object_hook=lambda table: float(table["float"]) if list(table) == ["float"] else table)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, (list, tuple)) else value


def _values(record: Any) -> list[Any]:
    """The fields of a dataclass, in order."""
    return [getattr(record, name) for name in record.__dataclass_fields__]

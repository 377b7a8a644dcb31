"""What the library writes for a run, and the run that it reads back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from gradstudio.core import presets
from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.events import MOST_CHANGES, Change, Event
from gradstudio.core.experiment import Experiment, differing_values, find_knob
from gradstudio.core.history import History
from gradstudio.core.knobs import of_today
from gradstudio.core.loop_calls import Loop
from gradstudio.core.presets import Preset
from gradstudio.core.provenance import Operation, Provenance
from gradstudio.core.row import AccumulationError, Activation, Activations, Layer, Logged, Settings
from gradstudio.core.strict_json import encode_floats
from gradstudio.core.text import clean
from gradstudio.core.unknown import UNKNOWN, is_known
from gradstudio.session.library.field_types import check_types
from gradstudio.session.record.run import JoinedBatch, Run, Status
from gradstudio.session.record.run_writer import RunWriter
from gradstudio.session.record.watched_script import WatchedScript

# The append-only lists of a run, each entry a row in the table `entries`: the list, and how to encode an entry.
GROWING: dict[str, tuple[Callable[[Run], Sequence[Any]], Callable[[Any], list[Any]]]] = {
    "event": (lambda run: run.events, lambda event: _values(event)),
    "refusal": (lambda run: run.refusals, lambda event: _values(event)),
    "compared": (lambda run: run.compared, list),
    "loop": (lambda run: run.history.loops, lambda loop: [loop[0], *loop[1]]),
    "settings": (lambda run: run.history.settings, lambda stretch: [stretch[0], *stretch[1]]),
    "accumulated": (lambda run: run.history.accumulated, list),
    "activations": (lambda run: run.history.activations, list),
    "unused": (lambda run: run.history.unused, lambda stretch: [stretch[0], *stretch[1]]),
    "logged": (lambda run: run.history.logged, list),
}

# Lists whose entries may change as the run goes on, each written as a whole.
WHOLE: dict[str, Callable[[Run], Sequence[Any]]] = {
    "finding": lambda run: [_values(finding) for finding in list(run.findings.values())],
    "change": lambda run: [_values(change) for change in list(run.timeline)],
    "provenance": lambda run: [provenance_values(run.provenance)] if run.provenance else [],
    "watched": lambda run: [_values(run.watched)] if run.watched else [],
    "asked": lambda run: [_values(change) for change in run.asked],
    "at_fork": lambda run: [
        list(pair) for pair in differing_values(run.experiment, run.at_fork or run.experiment).items()
    ],
}


def fixed_columns(run: Run) -> dict[str, Any]:
    """Return the columns of the table `runs` that never change."""
    return {
        "id": clean(run.id), "preset_id": clean(run.preset.id), "preset": clean(presets.to_toml(run.preset)),
        "experiment": clean(presets.to_toml(Preset(id=run.id, title=run.title, experiment=run.experiment))),
        "planned": dumps([_values(change) for change in run.planned]), "compare_at": dumps(list(run.compare_at)),
        "started": run.started,
        "parent": clean(run.parent) or None, "parent_step": run.parent_step if run.parent else None,
    }  # fmt: skip


def changing_columns(run: Run, history: History, steps: int) -> dict[str, Any]:
    """Return the columns of the table `runs` that change while the run trains, up to its first `steps` rows."""
    return {
        "title": clean(run.title), "status": run.status, "message": clean(run.message), "refused": run.refused,
        "accuracy": dumps(run.accuracy),
        "seconds": run.seconds, "steps": steps, "first_nonfinite_step": run.first_nonfinite_step,
        "final_loss": dumps(_final_loss(history, steps)),
        "environment": dumps(dict(run.environment)), "layers": dumps([list(layer) for layer in history.layers]),
    }  # fmt: skip


def _final_loss(history: History, steps: int) -> float | None:
    """Return the loss of the last of these rows; None if it was not measured."""
    loss = history.value("loss", steps - 1) if steps else UNKNOWN
    return loss if is_known(loss) else None


def run_from(
    row: Mapping[str, Any],
    entries: Mapping[str, list[Any]],
    history: History,
    status: Status,
    ancestors: Mapping[str, int],
) -> Run:
    """Return the stored run. KeyError, ValueError or TypeError if the stored values were altered."""
    _take_notes(history, entries)
    provenances = [provenance_of(values) for values in entries.get("provenance", [])]
    experiment = presets.parse(row["experiment"], Path(row["id"])).experiment
    line = check_types(
        _Line(
            row["id"], row["title"], row["started"], row["message"], row["seconds"], loads(row["accuracy"]),
            row["first_nonfinite_step"], tuple(loads(row["compare_at"])), tuple(loads(row["environment"]).items()),
        )
    )  # fmt: skip
    run = Run(
        _preset(row),
        experiment,
        planned=_changes(loads(row["planned"])),
        compare_at=line.compare_at,
        id=line.id,
        started=line.started,
        watched=_script(entries.get("watched", [])),
        ancestors=ancestors,
        status=status,
        message=line.message,
        refused=bool(row["refused"]),
        environment=dict(line.environment),
        seconds=line.seconds,
        history=history,
        events=_events(entries.get("event", [])),
        timeline=list(_changes(entries.get("change", []))),
        refusals=_events(entries.get("refusal", [])),
        compared=[check_types(JoinedBatch(*comparison)) for comparison in entries.get("compared", [])],
        findings={finding.rule: finding for finding in map(_finding, entries.get("finding", []))},
        first_nonfinite_step=line.first_nonfinite_step,
        provenance=provenances[-1] if provenances else None,
        accuracy=line.accuracy,
        **(_lineage(row, entries, experiment, len(history)) if row["parent"] else {}),
    )
    if line.title != run.title:
        RunWriter(run).rename(line.title)
    return run


class _Line(NamedTuple):
    """The columns that are read from a run's row in the table `runs`, with their required types."""

    id: str
    title: str
    started: float
    message: str
    seconds: float
    accuracy: float | None
    first_nonfinite_step: int | None
    compare_at: tuple[int, ...]
    environment: tuple[tuple[str, str], ...]


def _lineage(
    row: Mapping[str, Any], entries: Mapping[str, list[Any]], experiment: Experiment, rows: int
) -> dict[str, Any]:
    """Return the fields that only a branch has."""
    return {
        "parent": row["parent"],
        "parent_step": min(max(int(row["parent_step"]), 0), rows),  # rows may be damaged
        "at_fork": experiment.with_values(dict(entries.get("at_fork", []))),
        "asked": _changes(entries.get("asked", [])),
    }


def _preset(row: Mapping[str, Any]) -> Preset:
    """Return the preset of the run, with its file if that still exists."""
    preset = presets.parse(row["preset"], Path(row["preset_id"] + ".toml"))
    known = next((path for path in presets.available() if path.stem == preset.id), None)
    if preset.experiment.studio_file is not None:
        known = None  # a preset may have the name of the file
    bundled = known is not None and known.parent == presets.files.PRESETS
    # other knobs may be stored under its name: those of a cell of a map, or of an older version
    if bundled and known is not None:
        bundled = presets.read(known).experiment == preset.experiment
    return preset.model_copy(update={"path": known, "bundled": bundled})


def _take_notes(history: History, entries: Mapping[str, list[Any]]) -> None:
    """Add the notes beside the rows to a history."""
    history.loops += [
        (int(step), check_types(Loop(tuple(calls), *rest))) for step, calls, *rest in entries.get("loop", [])
    ]
    history.settings += [
        (int(step), _of_today(check_types(Settings(*values)))) for step, *values in entries.get("settings", [])
    ]
    history.accumulated += [check_types(AccumulationError(*values)) for values in entries.get("accumulated", [])]
    history.activations += [
        check_types(Activations(step, tuple(check_types(Activation(*values)) for values in layers)))
        for step, layers in entries.get("activations", [])
    ]
    history.logged += [check_types(Logged(*values)) for values in entries.get("logged", [])]
    known = {layer.name for layer in history.layers}
    for step, *names in entries.get("unused", []):
        if not known.issuperset(names):
            raise ValueError("a layer that the run does not have")
        history.unused.append((int(step), tuple(names)))


def _changes(entries: Sequence[list[Any]]) -> tuple[Change, ...]:
    if len(entries) > 10 * MOST_CHANGES:  # a branch has those of its parent too
        raise ValueError(f"{len(entries):,} changes, which no run has")
    changes = tuple(check_types(Change(*change)) for change in entries)
    for change in changes:
        find_knob(change.knob)  # KnobError for a name that is not a knob
    return tuple(replace(change, value=of_today(change.knob, change.value)) for change in changes)


def _of_today(settings: Settings) -> Settings:
    return settings._replace(clipping=str(of_today("clipping.kind", settings.clipping)))


def _events(entries: Sequence[list[Any]]) -> list[Event]:
    return [check_types(Event(*event)) for event in entries]


def _finding(values: list[Any]) -> Finding:
    fields: list[Any] = [tuple(value) if isinstance(value, list) else value for value in values]
    return check_types(Finding(*fields))


def _script(entries: Sequence[list[Any]]) -> WatchedScript | None:
    if not entries:
        return None
    script, arguments, sha256, every, facts, *log = entries[-1]
    pairs = tuple((key, value) for key, value in facts)
    return check_types(WatchedScript(script, tuple(arguments), sha256, every, pairs, *log))


def provenance_values(provenance: Provenance) -> dict[str, Any]:
    """Return a provenance as values for JSON."""
    return vars(provenance) | {"chain": [vars(operation) for operation in provenance.chain]}


def provenance_of(values: dict[str, Any]) -> Provenance:
    """Return the provenance from its stored values."""
    chain = tuple(check_types(Operation(**made)) for made in values["chain"])
    growth = tuple((str(place), float(value)) for place, value in values["growth"])
    lists = {"layers": tuple(values["layers"]), "ranks": tuple(values.get("ranks", ()))}
    return check_types(Provenance(**{**values, **lists, "chain": chain, "growth": growth}))


def layers_from(text: str) -> tuple[Layer, ...]:
    """Return the layers that `changing` wrote."""
    return tuple(check_types(Layer(*layer)) for layer in loads(text))


def dumps(value: Any) -> str:
    """Return the value as JSON in which NaN and Inf are {"float": "nan"}."""
    return clean(json.dumps(encode_floats(value, _tag), ensure_ascii=False, separators=(",", ":"), allow_nan=False))


def loads(text: str) -> Any:
    """Return the value that `dumps` wrote."""
    return json.loads(text, object_hook=lambda table: float(table["float"]) if list(table) == ["float"] else table)


def _tag(value: float) -> dict[str, str]:
    return {"float": repr(value)}


def _values(record: Any) -> list[Any]:
    """Return the fields of a dataclass, in order."""
    return [getattr(record, name) for name in record.__dataclass_fields__]

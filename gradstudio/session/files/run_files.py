"""The content of each file of a run. Writing them into a folder is in output.py."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import BinaryIO

import numpy as np

from gradstudio.core import files, presets, threads
from gradstudio.core.columns import COLUMNS, EXPORTED_METRICS
from gradstudio.core.history import BLOCK
from gradstudio.core.presets import Preset
from gradstudio.core.rank_figures import RANK_COLUMNS
from gradstudio.core.text import LONGEST_TITLE, shorten
from gradstudio.program import script
from gradstudio.session.files import csv_table, parquet
from gradstudio.session.files.summary import summarize, to_json
from gradstudio.session.record.run import Run

CHANGED = ", changed"  # appended to the title of a run whose knobs differ from its preset's


def as_preset(run: Run) -> Preset:
    """Return the run as a preset: its initial values, and the changes that were made to it."""
    preset, timeline = run.preset, run.course
    same = (
        run.experiment.model_copy(update={"run": preset.experiment.run}) == preset.experiment
    )  # another seed does not change a lesson
    if same and timeline == preset.timeline:
        return Preset(
            id=preset.id, title=preset.title, summary=preset.summary, experiment=run.experiment, timeline=timeline
        )
    title = preset.title if preset.title.endswith(CHANGED) else preset.title + CHANGED
    return Preset(id=preset.id, title=shorten(title, LONGEST_TITLE), experiment=run.experiment, timeline=timeline)


def experiment_toml(run: Run) -> str:
    """Return the file that repeats the run."""
    return presets.to_toml(as_preset(run))


def run_json(run: Run) -> str:
    """Return the summary, with title, message, environment and timeline."""
    timeline = [{"step": change.step, "knob": change.knob, "value": change.value} for change in list(run.timeline)]
    more = {"title": run.title, "message": run.message, "environment": dict(run.environment), "timeline": timeline}
    return to_json(summarize(run) | more) + "\n"


def metrics_csv(run: Run, file: BinaryIO) -> None:
    """Write a row for each step; for a branch, from its first own step."""
    history = run.history
    own = history.logged_names

    def read(start: int, stop: int) -> list[list[str]]:
        columns = [csv_table.column(name, history.column(name, start, stop)) for name in COLUMNS]
        return columns + [csv_table.floats(history.logged_column(name, start, stop)) for name in own]

    names = (*COLUMNS, *map(csv_table.harmless, own))
    csv_table.write_columns(file, names, run.parent_step, len(history), read)


def layers_npz(run: Run, file: BinaryIO) -> None:
    """Write one array (steps, layers) for each metric, and the steps, the layers' names, roles and sizes; readable
    without pickle. The file is identical to that of np.savez_compressed, but is never completely in memory."""
    history, first, count = run.history, run.parent_step, len(run.history)
    about = {
        "steps": np.arange(first, count),
        "layers": np.array([layer.name for layer in history.layers], dtype=np.str_),
        "roles": np.array([layer.role for layer in history.layers], dtype=np.str_),
        "sizes": np.array([layer.size for layer in history.layers], dtype=np.int64),
    }
    header = {
        "descr": np.lib.format.dtype_to_descr(np.dtype(np.float32)),
        "fortran_order": False,
        "shape": (count - first, len(history.layers)),
    }
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in about.items():
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
        for name in EXPORTED_METRICS:
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array_header_1_0(member, header)
                for start, stop in _stretches(first, count):
                    member.write(history.layer_metric(name, start, stop).tobytes())


def ranks_npz(run: Run, file: BinaryIO) -> None:
    """Write six arrays (steps, ranks) and the steps: the norm of each rank's own gradient before averaging, its seconds
    in communication and computing, its drift as last measured, the weight of one of its examples, and the number of
    steps that it will still take part in."""
    ranks, count = run.history.ranks, len(run.history)
    names = {"norm": "norms", "weight": "weights"}  # written like the released versions do
    arrays = {names.get(name, name): ranks.column(name, 0, count) for name in RANK_COLUMNS}
    np.savez_compressed(file, allow_pickle=False, steps=np.arange(min(len(ranks), count)), **arrays)


def has_ranks(run: Run) -> bool:
    """Return whether the figures of each rank are known; older versions did not store them with a run."""
    return len(run.history.ranks) >= len(run.history) > 0


def events_csv(run: Run) -> str:
    """Return the events as CSV, a line each; for a branch, those from its first own step: rules may report there what
    began before. A text that a spreadsheet would take for a formula is marked with an apostrophe."""
    events = list(run.events)
    since = max((place for place, event in enumerate(events) if event.kind == "branched"), default=0)
    lines = [csv_table.line(("step", "kind", "text", "knob", "before", "value"))]
    for event in (event for place, event in enumerate(events) if place >= since or event.step >= run.parent_step):
        before, value = ("" if part is None else part for part in (event.before, event.value))
        lines.append(csv_table.line((event.step, event.kind, event.text, event.knob, before, value)))
    return b"".join(lines).decode()


def train_py(run: Run) -> str:
    """Return the plain PyTorch program that repeats the run."""
    return script(
        run.experiment, run.course, title=as_preset(run).title, threads=threads.of(run.environment) or threads.chosen()
    )


FILES: dict[str, Callable[[Run], files.Content]] = {
    "experiment.toml": experiment_toml,
    "run.json": run_json,
    "metrics.csv": lambda run: partial(metrics_csv, run),
    "layers.npz": lambda run: partial(layers_npz, run),
    "events.csv": events_csv,
    "train.py": train_py,
}

# Those that are written only on request.
ON_REQUEST: dict[str, Callable[[Run], files.Content]] = {
    "metrics.parquet": lambda run: partial(parquet.metrics, run),
    "layers.parquet": lambda run: partial(parquet.layers, run),
}


def _stretches(first: int, count: int) -> Iterator[tuple[int, int]]:
    """Yield the rows in parts of BLOCK, which are read and written one after the other."""
    return ((start, min(start + BLOCK, count)) for start in range(first, count, BLOCK))

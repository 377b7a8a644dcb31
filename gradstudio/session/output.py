"""The files of a run: what --out writes. Each is written whole or not at all."""

from __future__ import annotations

import csv
import io
import os
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np

from gradstudio.core import files, presets, threads
from gradstudio.core.history import BLOCK, COLUMNS, LAYER_METRICS
from gradstudio.core.knobs import format_value
from gradstudio.core.presets import Preset
from gradstudio.session.run import Run
from gradstudio.session.summary import summarize, to_json

CHANGED = ", changed"  # behind the title of a run whose knobs are not its preset's any more
REPORTS = ("html", "pdf")
# The formats that a run can be had in at any time, and their files.
EXPORTS = {
    "html": ("report.html",), "pdf": ("report.pdf",), "json": ("run.json",), "csv": ("metrics.csv", "events.csv"), "npz": ("layers.npz",),
    "toml": ("experiment.toml",), "py": ("train.py",),
}  # fmt: skip
_WHOLE = ("step", "skipped", "nonfinite")  # columns that count


class OutputError(OSError):
    """A file or folder that cannot be written. One line, fit for a person."""


def check_folder(folder: Path) -> None:
    """Make the folder and make sure that files can be written into it; OutputError where they cannot."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as fault:
        raise _cannot(folder, fault) from None


def write(run: Run, folder: Path, reports: Sequence[str] = ()) -> list[Path]:
    """Write every file of a run, and its report in these formats; gives their paths. OutputError names the first that cannot be.
    A report that an earlier run left there goes, as its other files do."""
    written = []
    for name, content in FILES.items():
        written.append(_write(folder / name, content(run)))
    for suffix in REPORTS:
        if suffix not in reports:
            (folder / f"report.{suffix}").unlink(missing_ok=True)
    for suffix in reports:
        from gradstudio.session import report

        written.append(_write(folder / f"report.{suffix}", report.content(run, suffix)))
    return written


def export(run: Run, folder: Path, formats: Sequence[str], note: str = "") -> list[Path]:
    """Write the files of these EXPORTS into the folder, all or none; gives their paths. The note stands in a report. OutputError where
    they cannot be written."""
    from gradstudio.session import report

    contents: dict[Path, files.Content] = {}
    for name in (name for chosen in formats for name in EXPORTS[chosen]):
        contents[folder / name] = FILES[name](run) if name in FILES else report.content(run, Path(name).suffix[1:], note)
    return write_together(contents)


def write_together(contents: Mapping[Path, files.Content]) -> list[Path]:
    """Write several files so that all of them are there afterwards, or what was there before. OutputError names the first that cannot
    be written."""
    with ExitStack() as aside:
        ready = []
        for path, content in contents.items():
            check_folder(path.parent)
            if path.is_dir():
                raise OutputError(f"{path} cannot be written: is a directory")
            folder = aside.enter_context(tempfile.TemporaryDirectory(dir=path.parent, prefix=".gradstudio-"))
            ready.append((_write(Path(folder, path.name), content), path))
        for written, path in ready:
            os.replace(written, path)
    return list(contents)


def as_preset(run: Run) -> Preset:
    """The run as a preset of its own: what it started with, and the changes that were made to it."""
    preset, timeline = run.preset, run.course
    same = run.experiment.model_copy(update={"run": preset.experiment.run}) == preset.experiment  # another seed changes no lesson
    if same and timeline == preset.timeline:
        return Preset(id=preset.id, title=preset.title, summary=preset.summary, experiment=run.experiment, timeline=timeline)
    title = preset.title if preset.title.endswith(CHANGED) else preset.title + CHANGED
    return Preset(id=preset.id, title=title, experiment=run.experiment, timeline=timeline)


def experiment_toml(run: Run) -> str:
    """The file that gives the same run again."""
    return presets.to_toml(as_preset(run))


def run_json(run: Run) -> str:
    """The summary, and what a repetition needs to know."""
    timeline = [{"step": change.step, "knob": change.knob, "value": change.value} for change in list(run.timeline)]
    more = {"title": run.title, "message": run.message, "environment": dict(run.environment), "timeline": timeline}
    return to_json(summarize(run) | more) + "\n"


def metrics_csv(run: Run, file: BinaryIO) -> None:
    """A line a step, of a branch from the step on that it branched at. Floats read back bit for bit; NaN and Inf are spelled nan, inf,
    -inf."""
    history = run.history
    file.write((",".join(COLUMNS) + "\n").encode())
    for start, stop in _stretches(run.parent_step, len(history)):
        cells = [_cells(name, history.column(name, start, stop)) for name in COLUMNS]
        file.write("".join(",".join(row) + "\n" for row in zip(*cells, strict=True)).encode())


def layers_npz(run: Run, file: BinaryIO) -> None:
    """One array (steps, layers) for each measure, and the steps, the layers' names, roles and sizes; readable without pickle. As
    np.savez_compressed writes it, but without the whole of it in memory."""
    history, first, count = run.history, run.parent_step, len(run.history)
    about = {
        "steps": np.arange(first, count),
        "layers": np.array([layer.name for layer in history.layers], dtype=np.str_),
        "roles": np.array([layer.role for layer in history.layers], dtype=np.str_),
        "sizes": np.array([layer.size for layer in history.layers], dtype=np.int64),
    }
    header = {"descr": np.lib.format.dtype_to_descr(np.dtype(np.float32)), "fortran_order": False, "shape": (count - first, len(history.layers))}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in about.items():
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
        for name in LAYER_METRICS:
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array_header_1_0(member, header)
                for start, stop in _stretches(first, count):
                    member.write(history.layer_metric(name, start, stop).tobytes())


def events_csv(run: Run) -> str:
    """A line an event, of a branch those from where it branched on: rules may then still see what began before. A text that a
    spreadsheet would take for a formula is marked with an apostrophe."""
    events = list(run.events)
    since = max((place for place, event in enumerate(events) if event.kind == "branched"), default=0)
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["step", "kind", "text", "knob", "before", "value"])
    for event in (event for place, event in enumerate(events) if place >= since or event.step >= run.parent_step):
        before, value = ("" if part is None else part for part in (event.before, event.value))
        writer.writerow([event.step, event.kind, _cell(event.text), _cell(event.knob), _cell(before), _cell(value)])
    return buffer.getvalue()


def train_py(run: Run) -> str:
    """The plain PyTorch program that repeats the run."""
    from gradstudio.session.script import script

    return script(run.experiment, run.course, title=as_preset(run).title, threads=threads.of(run.environment) or threads.chosen())


FILES: dict[str, Callable[[Run], files.Content]] = {
    "experiment.toml": experiment_toml,
    "run.json": run_json,
    "metrics.csv": lambda run: partial(metrics_csv, run),
    "layers.npz": lambda run: partial(layers_npz, run),
    "events.csv": events_csv,
    "train.py": train_py,
}


def _stretches(first: int, count: int) -> Iterator[tuple[int, int]]:
    """Rows in parts that are read and written one after the other."""
    return ((start, min(start + BLOCK, count)) for start in range(first, count, BLOCK))


def _cells(name: str, values: np.ndarray) -> list[str]:
    return [str(int(value)) for value in values] if name in _WHOLE else [repr(value) for value in values.tolist()]


def _cell(value: object) -> str:
    text = format_value(value)
    return "'" + text if isinstance(value, str) and text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def _write(path: Path, content: files.Content) -> Path:
    try:
        files.write_whole(path, content)
    except OSError as fault:
        raise _cannot(path, fault) from None
    return path


def _cannot(path: Path, fault: OSError) -> OutputError:
    return OutputError(f"{path} cannot be written: {(fault.strerror or str(fault)).lower()}")

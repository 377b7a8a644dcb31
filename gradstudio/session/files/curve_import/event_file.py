"""Curves from TensorBoard's event files. Only scalars are decoded, so TensorBoard need not be installed."""

from __future__ import annotations

import os
import struct
from array import array
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from gradstudio.core.text import one_line
from gradstudio.session.files.curve_import.imported_curve import (
    LONGEST_NAME,
    MOST_CURVES,
    Curve,
    CurveError,
    from_steps,
    load,
)
from gradstudio.session.files.tensorboard import records
from gradstudio.session.files.tensorboard.messages import BYTES, DOUBLE, FIXED32, FLOAT, VARINT, fields

MOST_FILES = 200  # in a folder
MOST_FOLDERS = 10_000  # below it


def read(path: Path) -> list[Curve]:
    """Return the scalars of an event file, or of all event files in a folder and below it. An incomplete last record is
    ignored, as in TensorBoard; a damaged one is a CurveError that names it."""
    points: dict[str, tuple[array, array]] = {}
    owner: dict[str, str] = {}
    files = _files(path)
    for file, run in files:
        contents, damage = records.unpack(load(file))
        if damage:
            raise CurveError(file, f"{damage}; allowed: an event file as TensorBoard writes it")
        try:
            for step, tag, value in _scalars(contents):
                name = f"{run}/{tag}" if run else tag
                owner[name] = run
                steps, values = points.setdefault(name, (array("q"), array("d")))
                steps.append(step)
                values.append(value)
                if len(points) > MOST_CURVES:
                    raise CurveError(
                        file, f"more than {MOST_CURVES:,} scalars; allowed: a log of fewer, or a folder of one run"
                    )
        except (ValueError, IndexError, struct.error) as fault:
            if isinstance(fault, CurveError):
                raise
            raise CurveError(file, "a record holds no event; allowed: an event file as TensorBoard writes it") from None
    if not points:
        raise CurveError(path, "no scalars; allowed: a TensorBoard log with at least one")
    latest = {run: -place for place, (_, run) in enumerate(files)}  # the run that was written to last comes first
    names = sorted(points, key=lambda name: (latest[owner[name]], name))
    arrays = ((one_line(name)[:LONGEST_NAME], *points[name]) for name in names)
    return [from_steps(name, np.array(steps), np.array(values)) for name, steps, values in arrays]


def _files(path: Path) -> list[tuple[Path, str]]:
    """Return the event files, oldest first, each with the name of its run: its folder relative to `path`."""
    if not os.path.isdir(path):
        return [(path, "")]
    paths: list[Path] = []
    for count, (folder, _, names) in enumerate(os.walk(path)):
        if count >= MOST_FOLDERS:
            raise CurveError(path, f"more than {MOST_FOLDERS:,} folders; allowed: the folder of one run, or of a few")
        paths += [Path(folder, name) for name in names if "tfevents" in name]
        if len(paths) > MOST_FILES:
            raise CurveError(path, f"more than {MOST_FILES} event files; allowed: the folder of one run, or of a few")
    if not paths:
        raise CurveError(
            path,
            "no log in this folder; allowed: one with TensorBoard's files (tfevents), trainer_state.json, metrics.csv, "
            "run-*.wandb, mlflow.db or mlruns",
        )
    runs = [(file, file.parent.relative_to(path).as_posix()) for file in sorted(paths, key=lambda file: file.name)]
    return [(file, "" if run == "." else run) for file, run in runs]


def _scalars(contents: list[bytes]) -> Iterator[tuple[int, str, float]]:
    """Yield step, tag and value of every scalar, in the order in which they were written."""
    for content in contents:
        step, summaries = 0, []
        for number, kind, part in fields(content):
            if (number, kind) == (2, VARINT):
                step = part if part < 1 << 63 else part - (1 << 64)
            elif (number, kind) == (5, BYTES):
                summaries.append(part)
        for summary in summaries:
            for number, kind, part in fields(summary):
                if (number, kind) == (1, BYTES) and (scalar := _scalar(part)) is not None:
                    yield step, *scalar


def _scalar(content: bytes) -> tuple[str, float] | None:
    """Return tag and value of a Summary.Value; None if it is not a scalar."""
    tag, value = "", None
    for number, kind, part in fields(content):
        if (number, kind) == (1, BYTES):
            tag = part.decode("utf-8", "replace")
        elif (number, kind) == (2, FIXED32):
            (value,) = struct.unpack("<f", part)
        elif (number, kind) == (8, BYTES):
            value = _tensor(part)
    return None if value is None else (tag, value)


def _tensor(content: bytes) -> float | None:
    """Return the number in a TensorProto with a single number; None for any other."""
    dtype, packed = 0, b""
    for number, kind, part in fields(content):
        if (number, kind) == (1, VARINT):
            dtype = part
        elif number == 4 or (number, dtype) in ((5, FLOAT), (6, DOUBLE)):  # tensor_content, float_val, double_val
            packed = part
    form = {FLOAT: "<f", DOUBLE: "<d"}.get(dtype)
    return struct.unpack(form, packed)[0] if form and len(packed) == struct.calcsize(form) else None

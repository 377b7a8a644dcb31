"""Curves from JSON: JSON lines, a list of records, or the `trainer_state.json` of Hugging Face's Trainer."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gradstudio.core.text import one_line
from gradstudio.session.files.curve_import.imported_curve import (
    LONGEST_NAME,
    MOST_CURVES,
    Curve,
    CurveError,
    from_rows,
    load,
)
from gradstudio.session.files.curve_import.table_file import STEPS, TIMES, parse_number, plain_name

DEEPEST = 8  # records within records


def read(path: Path) -> list[Curve]:
    """Return the curves of a file; CurveError names the line that is not JSON."""
    text = load(path).decode("utf-8-sig", "replace")
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        return of_records(path, _lines(path, text))
    log_history = whole.get("log_history", whole) if isinstance(whole, dict) else whole
    records = log_history if isinstance(log_history, list) else [log_history]
    return of_records(path, (record for record in records if isinstance(record, dict)))


def of_records(path: Path, records: Iterable[Mapping[str, Any]]) -> list[Curve]:
    """Return a curve for each name in records of numbers, which may be nested. The step is that of the record; without
    one, records are counted."""
    series: dict[str, tuple[array, array]] = {}
    counted = array("d")  # the step of each record
    for number, record in enumerate(records):
        flat = dict(_flat(record))
        names = {plain_name(name): name for name in flat}
        counted.append(next((flat[names[step]] for step in STEPS if step in names), float(number)))
        for name, value in flat.items():
            if math.isfinite(counted[-1]) and plain_name(name) not in (*STEPS, *TIMES):
                rows, values = series.setdefault(one_line(name)[:LONGEST_NAME], (array("q"), array("d")))
                rows.append(number)
                values.append(value)
        if len(series) > MOST_CURVES:
            raise CurveError(path, f"more than {MOST_CURVES:,} names; allowed: a log of fewer")
    if not series:
        raise CurveError(path, "no numbers; allowed: records of numbers, such as lines of JSON")
    return from_rows(((name, *points) for name, points in series.items()), np.array(counted))


def _lines(path: Path, text: str) -> Iterable[Mapping[str, Any]]:
    """Yield the record of each line, except a last one that was not written completely."""
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            if number == len(lines) > 1 and line.lstrip().startswith("{") and not text.endswith("\n"):
                return
            raise CurveError(path, f", line {number}: no JSON; allowed: a record on each line, or one list") from None
        if isinstance(record, dict):
            yield record


def _flat(record: Mapping[str, Any], before: str = "", depth: int = 0) -> Iterable[tuple[str, float]]:
    """Yield every number of a record, with its name."""
    for key, value in record.items():
        name = f"{before}{key}"
        if isinstance(value, dict) and depth < DEEPEST:
            yield from _flat(value, f"{name}/", depth + 1)
        elif isinstance(value, str):
            if (number := parse_number(value)) is not None:
                yield name, number
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            try:
                yield name, float(value)
            except OverflowError:
                yield name, math.inf if value > 0 else -math.inf

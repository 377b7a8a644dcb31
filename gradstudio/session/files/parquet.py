"""Tables of a run as Parquet, which DuckDB, polars and pandas read: unmeasured values are null, and a NaN stays one.
pyarrow comes with the extra `parquet`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import numpy as np

from gradstudio.core.columns import COLUMNS, EXPORTED_METRICS
from gradstudio.core.history import BLOCK
from gradstudio.core.unknown import known_mask
from gradstudio.session.files.csv_table import COUNTS
from gradstudio.session.record.run import Run


def metrics(run: Run, file: BinaryIO) -> None:
    """Write a row for each step; for a branch, from its first own step."""
    history = run.history

    def part(start: int, stop: int) -> dict[str, Any]:
        return {name: _cells(name, history.column(name, start, stop)) for name in COLUMNS}

    _write(file, run, part)


def layers(run: Run, file: BinaryIO) -> None:
    """Write a row for each step and layer."""
    history = run.history
    names = np.array([layer.name for layer in history.layers], dtype=object)

    def part(start: int, stop: int) -> dict[str, Any]:
        steps = history.column("step", start, stop).astype(np.int64)
        columns = {"step": np.repeat(steps, len(names)), "layer": np.tile(names, len(steps))}
        metrics = {name: _cells(name, history.layer_metric(name, start, stop).ravel()) for name in EXPORTED_METRICS}
        return columns | metrics

    _write(file, run, part)


def _cells(name: str, values: np.ndarray) -> Any:
    import pyarrow  # pyright: ignore[reportMissingImports]

    whole = values.astype(np.int64) if name in COUNTS and known_mask(values).all() else values
    return pyarrow.array(whole, mask=~known_mask(values), type=pyarrow.int64() if whole.dtype == np.int64 else None)


def _write(file: BinaryIO, run: Run, part: Callable[[int, int], dict[str, Any]]) -> None:
    """Write the run's own rows, one part after the other."""
    from pyarrow import parquet, table  # pyright: ignore[reportMissingImports]

    def parts() -> Iterator[Any]:
        first, count = run.parent_step, len(run.history)
        for start in range(first, count, BLOCK) if count > first else (first,):
            yield table(part(start, min(start + BLOCK, count)))

    tables = parts()
    begun = next(tables)
    with parquet.ParquetWriter(file, begun.schema) as writer:
        writer.write_table(begun)
        for each in tables:
            writer.write_table(each.cast(begun.schema))

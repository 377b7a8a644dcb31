"""Columns of plug-ins: numbers computed from each row, and stored beside it."""

from __future__ import annotations

from dataclasses import replace

from gradstudio.core import plugins
from gradstudio.core.row import Logged, Row


def with_columns(row: Row, place: int, gauges: tuple[tuple[str, float], ...] = ()) -> Row:
    """Return the run's row at this position with the columns of plug-ins and these gauges."""
    columns = list(gauges)
    for name in plugins.names("columns"):
        value = plugins.attempt("columns", name, lambda name=name: float(plugins.get("columns", name)(row)))
        if value is not None:
            columns.append((name, value))
    logged = tuple(Logged(place, name, value) for name, value in columns)
    return replace(row, logged=(*row.logged, *logged)) if logged else row

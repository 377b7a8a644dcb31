"""A measured figure, what it ought to be, and the table of them."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gradstudio.core.text import number


@dataclass(frozen=True, slots=True)
class Figure:
    what: str
    value: float
    unit: str = ""  # such as "ms"; empty for a ratio
    most: float | None = None  # the target, where the value should be at most this
    least: float | None = None  # or at least this
    note: str = ""

    @property
    def met(self) -> bool:
        return (self.most is None or self.value <= self.most) and (self.least is None or self.value >= self.least)

    @property
    def target(self) -> str:
        bound = self.most if self.most is not None else self.least
        return "" if bound is None else f"{'≤' if self.most is not None else '≥'} {bound:g} {self.unit}".strip()


def markdown(figures: Iterable[Figure]) -> Iterable[str]:
    """The table, a line at a time, as the figures come."""
    yield "| what | measured | target | met | |"
    yield "|---|---:|---:|---|---|"
    for figure in figures:
        met = "" if not figure.target else "yes" if figure.met else "**no**"
        yield (
            f"| {figure.what} | {number(figure.value)} {figure.unit}".rstrip()
            + f" | {figure.target} | {met} | {figure.note} |"
        )


def machine() -> str:
    """The processor and its cores, in a line."""
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        name = f"{names[0]}, {len(names)} cores" if names else name
    return f"{name}; {platform.system()}, Python {platform.python_version()}"

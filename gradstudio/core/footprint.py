"""The memory of one training step: what uses how much, how usage rises and falls, where its peak is, and what would
lower it. All sizes are in bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gradstudio.core.knobs import Value, format_value

MB = 1_000_000  # bytes, as run.memory_budget counts them

# The uses of memory. saved: activations kept for the backward pass. temporary: everything else.
PARTS: tuple[str, ...] = ("parameters", "gradients", "optimizer", "data", "saved", "temporary")
PHASES: tuple[str, ...] = ("data", "forward", "backward", "unscale", "clip", "update")


@dataclass(frozen=True)
class Moment:
    """A point on the curve: the operation that started with `before` bytes in use, and the most that it needed."""

    phase: str
    operation: str
    before: int
    after: int


@dataclass(frozen=True)
class Footprint:
    """The memory use of one step. `sizes` are the maximum of each part during the step; `at_peak` are the parts at the
    peak, which add up to it. The curve has the bytes after each change, and the index of its phase and operation."""

    peak: int
    phase: str
    operation: str
    sizes: Mapping[str, int]
    at_peak: Mapping[str, int]
    before: int  # bytes between two steps
    curve: tuple[int, ...]
    phases: tuple[int, ...]  # index in PHASES, for each entry of the curve
    operations: tuple[int, ...]  # index in `names`
    names: tuple[str, ...]
    multiplications: int  # of matrix products and convolutions; 0 if torch does not report it

    def first_above(self, limit: int) -> Moment | None:
        """Return the first operation that would need more than `limit` bytes; None if all fit."""
        before = self.before
        for taken, phase, operation in zip(self.curve, self.phases, self.operations, strict=True):
            if taken > limit:
                return Moment(PHASES[phase], self.names[operation], before, taken)
            before = taken
        return None

    def plain(self) -> dict[str, Any]:
        """Return the footprint as plain data."""
        return asdict(self)


def from_plain(given: Mapping[str, Any]) -> Footprint:
    """Return the footprint from which `plain` was made."""
    rows = {name: tuple(given[name]) for name in ("curve", "phases", "operations", "names")}
    return Footprint(**{**given, **rows})


@dataclass(frozen=True)
class Cure:
    """A change of knobs that lowers the peak, and its cost. `same_gradient`: the gradient of each step equals that of
    the experiment, up to rounding. `work`: multiplications per step relative to now; 0 if unknown."""

    changes: Mapping[str, Value]
    peak: int
    same_gradient: bool
    work: float
    fits: bool = True  # into the budget

    def plain(self) -> dict[str, Any]:
        """Return the cure as plain data."""
        return asdict(self)

    @property
    def assignments(self) -> list[str]:
        """Return the changes as written on a command line."""
        return [f"{name}={format_value(value)}" for name, value in self.changes.items()]

"""The memory of one training step: what takes how much, how it rises and falls, where its peak is, and what would lower
it. All sizes are bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gradstudio.core.knobs import Value, format_value

MB = 1_000_000  # bytes, as run.memory_budget counts them

# What memory is taken by. saved: activations that are kept for the backward pass. temporary: everything else.
PARTS: tuple[str, ...] = ("parameters", "gradients", "optimizer", "data", "saved", "temporary")
PHASES: tuple[str, ...] = ("data", "forward", "backward", "unscale", "clip", "update")


@dataclass(frozen=True)
class Moment:
    """A place on the curve: the operation that began with `before` bytes taken, and the most that it needed."""

    phase: str
    operation: str
    before: int
    after: int


@dataclass(frozen=True)
class Footprint:
    """What one step takes. `sizes` are the most that each part takes during the step, `at_peak` what they take at the
    peak: these add up to it. The curve has the bytes after each change, and the number of its phase and operation."""

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
    multiplications: int  # of matrix products and convolutions; 0 where torch does not tell

    def first_above(self, limit: int) -> Moment | None:
        """Return the first operation that would need more than `limit` bytes, None if all fit."""
        before = self.before
        for taken, phase, operation in zip(self.curve, self.phases, self.operations, strict=True):
            if taken > limit:
                return Moment(PHASES[phase], self.names[operation], before, taken)
            before = taken
        return None

    def plain(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


def from_plain(given: Mapping[str, Any]) -> Footprint:
    """Return what `plain` was made of."""
    rows = {name: tuple(given[name]) for name in ("curve", "phases", "operations", "names")}
    return Footprint(**{**given, **rows})


@dataclass(frozen=True)
class Cure:
    """A change of knobs that lowers the peak, and what it costs. `same_gradient`: the gradient of each step is that of
    the experiment, up to rounding. `work`: multiplications of a step, 1 as many as before; 0 unknown."""

    changes: Mapping[str, Value]
    peak: int
    same_gradient: bool
    work: float
    fits: bool = True  # into the budget

    def plain(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)

    @property
    def assignments(self) -> list[str]:
        """Return the changes as they are written on a command line."""
        return [f"{name}={format_value(value)}" for name, value in self.changes.items()]

"""How a training is to be watched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

OnNonfinite = Literal["explain", "raise", "skip", "ignore"]
OnSpike = Literal["skip", "rewind"] | None
POLICIES: tuple[str, ...] = get_args(OnNonfinite)
MOST_RECORD = 1000
RECORD = 8  # how many steps back a crash file goes


@dataclass(frozen=True)
class Options:
    """The user's options. `every`: steps from one row to the next; `updates`: whether the size of each update is
    measured, which needs another copy of the weights; `stop_on`: the severity of a finding that ends the script, or
    "diverged"; `record`: how many steps back a crash file goes, 0 for none, and `record_budget` the bytes that may be
    kept for it, None for a share of the free memory; `on_spike`: whether an update whose gradient norm is a spike is
    suppressed, and the weights of some steps ago are restored too."""

    on_nonfinite: OnNonfinite = "explain"
    every: int = 1
    updates: bool = True
    stop_on: str = ""
    on_finding: Any = None  # other recipients of a finding, and `to` which tracker: see recording/messenger.py
    to: Any = None
    resume: str | None = None  # the run resumed by this one
    record: int = RECORD
    record_budget: int | None = None
    on_spike: OnSpike = None

    def __post_init__(self) -> None:
        if self.on_nonfinite not in POLICIES:
            raise ValueError(f"on_nonfinite = {self.on_nonfinite!r} is not allowed; allowed: {', '.join(POLICIES)}")
        if type(self.every) is not int or self.every < 1:
            raise ValueError(f"every = {self.every!r} is not allowed; allowed: a whole number, 1 or more")
        if self.on_spike not in (None, "skip", "rewind"):
            raise ValueError(f"on_spike = {self.on_spike!r} is not allowed; allowed: skip, rewind")
        if self.on_spike == "rewind" and not self.record:
            raise ValueError("on_spike = 'rewind' goes back to what record keeps, and record is 0")
        if type(self.record) is not int or not 0 <= self.record <= MOST_RECORD:
            raise ValueError(f"record = {self.record!r} is not allowed; allowed: a whole number, 0 to {MOST_RECORD}")

    @property
    def records(self) -> int:
        """Steps back to which states are kept: 0 if neither a crash file nor a rewind can follow."""
        return 0 if self.on_nonfinite == "ignore" and self.on_spike != "rewind" else self.record

    @property
    def spares_weights(self) -> bool:
        """Whether non-finite updates are to be suppressed."""
        return self.on_nonfinite in ("raise", "skip")

    @property
    def acts_before_update(self) -> bool:
        """Whether the figures of a step may decide on its update."""
        return self.spares_weights or bool(self.on_spike)

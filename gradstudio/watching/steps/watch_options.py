"""How a training is to be watched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

OnNonfinite = Literal["explain", "raise", "skip", "ignore"]
POLICIES: tuple[str, ...] = get_args(OnNonfinite)


@dataclass(frozen=True)
class Options:
    """What a person asked for. `every`: steps from one row to the next; `updates`: whether the size of each update is
    measured, for which the weights are kept once more; `stop_on`: how severe a finding ends the script, or
    "diverged"."""

    on_nonfinite: OnNonfinite = "explain"
    every: int = 1
    updates: bool = True
    stop_on: str = ""
    on_finding: Any = None  # whom else a finding is told, and `to` which tracker: see recording/messenger.py
    to: Any = None
    resume: str | None = None  # the run that goes on in this one

    def __post_init__(self) -> None:
        if self.on_nonfinite not in POLICIES:
            raise ValueError(f"on_nonfinite = {self.on_nonfinite!r} is not allowed; allowed: {', '.join(POLICIES)}")
        if type(self.every) is not int or self.every < 1:
            raise ValueError(f"every = {self.every!r} is not allowed; allowed: a whole number, 1 or more")

    @property
    def spares_weights(self) -> bool:
        """Whether an update by what is not finite is to be kept from the weights."""
        return self.on_nonfinite in ("raise", "skip")

"""The change with which recorded steps are replayed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from gradstudio.session.files.crash_file import PlainCall


class Guard(NamedTuple):
    """The change to the dangerous argument of a call, which is identified by its name, its line and its module;
    "softplus" replaces the call by a softplus, and "mask" replaces -Inf by a number."""

    do: str
    line: str
    how: str
    by: float
    module: str | None = None  # None for any

    def holds(self, call: PlainCall) -> bool:
        """Return whether it is this call."""
        return (self.do, self.line) == (call.do, call.line) and self.module in (None, call.module)


@dataclass(frozen=True)
class Change:
    """`rate` is a factor, and with `first_rate` none is above that of the first recorded step; `clip` a kind and a
    limit; `values` are put into every parameter group; `exact` is the part of the model that computes in fp32, "*" for
    all of it, and `dtype` the autocast format of the rest; `attention` gives queries and keys a size of 1, or the
    scores a soft cap; `scale` is the loss scale; `skipped` are the numbers of omitted steps; `drops_examples`: those
    that are not finite are left out of a batch."""

    name: str = ""
    lines: tuple[str, ...] = ()  # of code, to be changed in the script
    rate: float = 1.0
    first_rate: bool = False
    clip: tuple[str, float] | None = None
    values: dict[str, Any] = field(default_factory=dict)
    exact: str | None = None
    dtype: str = ""
    guards: tuple[Guard, ...] = ()
    attention: Literal["", "norm", "cap"] = ""
    scale: float | None = None
    skipped: frozenset[int] = frozenset()
    drops_examples: bool = False

    def computes_exactly(self, module: str) -> bool:
        """Return whether a part of the model computes in fp32."""
        if self.exact is None:
            return False
        return self.exact == "*" or module == self.exact or module.startswith(f"{self.exact}.")


NO_CHANGE = Change()

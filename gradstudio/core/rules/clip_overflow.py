"""Clipping by a norm beyond the number format: the limit divided by Inf is 0, so no gradient remains."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradstudio.core.diagnosis import clipping_limit
from gradstudio.core.diagnosis.median import median
from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.rule import PeriodicRule
from gradstudio.core.history import History, up_to
from gradstudio.core.text import number, plural

_LARGEST_HALF = 65504.0  # the smallest of the largest numbers of all formats


@dataclass
class ClipOverflow(PeriodicRule):
    """Fires if clipping by norm left exactly nothing of a nonzero gradient: `clip_grad_norm_` computes the norm in the
    gradient's own format, in float32 Inf from 1.8e19 on, and multiplies by limit / Inf. If the norm was smaller,
    something else discarded the gradient. Critical while it goes on. Exact: no threshold was chosen."""

    rule = "clip_overflow"
    first_steps: int = 20  # whose median norm is the usual one

    _seen: int = 0
    _count: int = 0
    _first: int = -1
    _latest: int = -1

    def look(self, history: History, state: Progress) -> None:
        coefs, norms = (history.column(name, self._seen) for name in ("clip_coef", "grad_norm"))
        frozen = self._seen + np.flatnonzero((coefs == 0) & (norms > _LARGEST_HALF))
        settings = history.settings[-1][1] if history.settings else None
        by_norm = settings is not None and settings.clipping in clipping_limit.BY_NORM
        limit = settings.limit if settings and by_norm else 0.0
        self._seen = len(history)
        if len(frozen) and limit > 0:
            self._first = int(frozen[0]) if self._first < 0 else self._first
            self._count, self._latest = self._count + len(frozen), int(frozen[-1])
        if self._first < 0:
            return
        goes_on = self._latest == len(history) - 1
        norm = history.value("grad_norm", self._latest)
        norms = history.column("grad_norm", 0, min(self.first_steps, self._first))
        norms = norms[np.isfinite(norms)]
        usual = median(norms) if len(norms) else 0.0
        lower = (f"clipping.max_norm={usual:.2g}",) if 0 < usual < limit else ()  # before it grows
        self.tell(
            history, "critical" if goes_on else "info",
            "Clipping leaves nothing of the gradient",
            f"Clipping left exactly 0 of the gradient at {plural(self._count, 'step', 'steps')} {up_to(history)}; at "
            f"step {self._latest:,} its norm was {number(norm)}.",
            "Such a norm is beyond the number format, so it is taken for Inf, and the limit divided by Inf is 0. "
            f"{'No gradient reaches the optimizer.' if goes_on else 'It is over.'}",
            lower if goes_on else (), first=self._first, last=self._latest,
        )  # fmt: skip

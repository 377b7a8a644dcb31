"""Layers that receive no gradient from any backward pass: they exist, and nothing trains them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.rule import PeriodicRule
from gradstudio.core.diagnosis.streak import NO_STREAK, Streak
from gradstudio.core.diagnosis.unreached_layers import unused_layers
from gradstudio.core.history import History, up_to
from gradstudio.core.text import plural

_NAMED = 4  # layers in the sentence; the finding lists all of them


@dataclass
class UnusedLayers(PeriodicRule):
    """Fires if a backward pass brought no gradient to a parameter. That may be intended, so it is a note; it is a
    warning in a run that does badly, as a layer may have been forgotten."""

    rule = "unused_layers"

    _streak: Streak = NO_STREAK

    def look(self, history: History, state: Progress) -> None:
        unused = tuple(sorted(unused_layers(history)))
        if not unused:
            if self._finding is not None:  # they are used by now
                self._finding = replace(self._finding, severity="info")
            return
        names = tuple(history.layers[index].name for index in unused)
        if self._finding is not None and self._finding.layers != names:
            self._finding = None  # a different set than before
        self._streak = self._streak.at(history, "grad_norm", unused, lambda norms: ~np.any(norms, axis=1))
        first = self._streak.first
        text, more = " and ".join(names[:_NAMED]), len(names) - _NAMED
        if more > 0:
            text = f"{', '.join(names[:_NAMED])} and {plural(more, 'other', 'others')}"
        one = len(names) == 1
        steps = plural(len(history) - first, "step", "steps")
        self.tell(
            history,
            "warning" if state.stuck or state.has_lost else "info",
            "A parameter gets no gradient" if one else f"{len(names)} parameters get no gradient",
            f"No backward pass brought a gradient to {text} in any of the {steps} {up_to(history)}.",
            f"{'It is' if one else 'They are'} not trained in these steps; only weight decay or noise could change "
            f"{'it' if one else 'them'}. The layer was not called, as an expert that no example is sent to; or its "
            "output does not reach the loss; or the graph is cut behind it, as by `detach`, `no_grad`, or a checkpoint "
            "with `use_reentrant=True` whose input needs no gradient. If this is meant, nothing is wrong.",
            (),
            names,
            first=first,
        )

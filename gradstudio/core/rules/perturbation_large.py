"""A perturbation of sharpness-aware minimization that moves the weights too far."""

from __future__ import annotations

from dataclasses import dataclass

from gradstudio.core.diagnosis.median import median
from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.rule import PeriodicRule
from gradstudio.core.history import History, up_to
from gradstudio.core.text import number


@dataclass
class PerturbationLarge(PeriodicRule):
    """Fires if rho is more than `share` of the norm of the weights in the median of `after` steps, in a run that does
    badly or not yet well: an update of that size counts as too large. Foret 2021 uses a rho of 0.05."""

    rule = "perturbation_large"
    share: float = 0.1
    after: int = 50

    def look(self, history: History, state: Progress) -> None:
        since, settings = history.settings[-1] if history.settings else (0, None)
        if settings is None or not settings.rho or len(history) < since + self.after or not state.struggling:
            self.soften(not state.well)
            return
        norm = median(history.column("weight_norm", max(since, len(history) - self.after)))
        if not settings.rho > self.share * norm:
            self.soften(not state.well)
            return
        self.tell(
            history, "critical" if state.failing else "warning", "SAM looks too far ahead",
            f"Each gradient is taken at weights that were moved by rho = {number(settings.rho)}; the median norm of "
            f"the weights is {number(norm)} in the {self.after} steps {up_to(history)}.",
            f"That is a move of {number(settings.rho / norm, 2)} times the weights, so the gradient says little of "
            "where the weights are.",
            ("optimizer.sam_rho=0.05",), first=since,
        )  # fmt: skip

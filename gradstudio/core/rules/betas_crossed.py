"""A mean of squared gradients that decays sooner than the mean of gradients that Adam divides by its root."""

from __future__ import annotations

from dataclasses import dataclass

from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.rule import PeriodicRule
from gradstudio.core.history import History
from gradstudio.core.text import number


@dataclass
class BetasCrossed(PeriodicRule):
    """Fires if beta1 squared has been beta2 or more for `after` steps. After k steps m still has beta1^k of a gradient
    and the root of v only beta2^(k/2), so nothing bounds the update (Reddi 2018 asks for beta1 < sqrt(beta2)). Critical
    in a run that does badly; a warning in one that does not do well, or whose weights have grown `grown` times;
    otherwise a note."""

    rule = "betas_crossed"
    after: int = 50
    grown: float = 10.0

    def look(self, history: History, state: Progress) -> None:
        since, settings = history.settings[-1] if history.settings else (0, None)
        crossed = settings is not None and 0 < settings.beta2 <= settings.beta1**2
        if not crossed or len(history) < since + self.after:
            self.soften(False)
            return
        assert settings is not None
        before, now = (history.value("weight_norm", step) for step in (since, len(history) - 1))
        harmful = state.struggling or state.worse or not now < self.grown * before
        self.tell(
            history, "critical" if state.failing else "warning" if harmful else "info", "Adam's betas are crossed",
            f"beta1 has been {number(settings.beta1)} and beta2 {number(settings.beta2)} since step {since:,}: a mean "
            f"over about {number(1 / (1 - settings.beta1))} gradients is divided by the root of a mean over about "
            f"{number(1 / (1 - settings.beta2))} squares. The norm of the weights was {number(before)} at step "
            f"{since:,}, and is {number(now)} at step {len(history) - 1:,}.",
            "A large gradient is still in the first mean after the second has forgotten it, so nothing bounds the "
            "update. beta1 has to be below the root of beta2.",
            ("optimizer.beta1=0.9 optimizer.beta2=0.999",) if harmful else (), first=since,
        )  # fmt: skip

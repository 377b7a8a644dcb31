"""Gradients that grow out of all proportion. Contained by clipping, or beside a loss that stays calm, they are no fault."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from gradstudio.core.history import History
from gradstudio.core.rules import RANK, Finding, Severity
from gradstudio.core.rules.median import median
from gradstudio.core.rules.progress import Progress, loss_at_start, progress
from gradstudio.core.rules.rates import lower
from gradstudio.core.text import number, plural


@dataclass
class ExplodingGradient:
    """Fires at a norm above `norm`, or one above `times` the running median that has grown over `growing` steps.

    It is critical once the loss has left its running median by `loss_times` within `patience` steps of a norm that
    reached the optimizer unclipped, and no more than a note again where the run does well `rested` steps later.
    """

    rule = "exploding_gradient"
    every_row = True

    norm: float = 100.0
    times: float = 10.0
    growing: int = 3
    least: float = 1.0  # a tenfold growth below this norm is no explosion
    loss_times: float = 2.0
    loss_height: float = 0.2  # of the loss at the start: a leap at the foot of the valley is no explosion
    patience: int = 5
    window: int = 100
    rested: int = 50

    _finding: Finding | None = None
    _median: float = math.inf
    _line: float = 0.0  # no norm up to it is large
    _median_loss: float = math.inf
    _peak: float = 0.0  # the norm that the finding tells of
    _peak_step: int = 0
    _loose_until: int = -1  # a large norm reached the optimizer; what the loss does up to this step is its doing

    def update(self, history: History) -> Finding | None:
        step = len(history) - 1
        if step % 50 == 0 or step in (10, 20):
            self._take_medians(history)
        norm = history.value("grad_norm", step)
        if norm > self._line and self._large(history, step, norm) and not history.value("skipped", step):  # a skipped one is the scaler's doing
            clipped = history.value("clipped_norm", step)
            if clipped > min(self.norm, self.times * self._median) or math.isnan(clipped):
                self._loose_until = step + self.patience
            self._keep(history, step, "info")
        if step <= self._loose_until and self._finding:
            loss = history.value("loss", step)
            left = not math.isfinite(loss) or loss > max(self.loss_times * self._median_loss, self.loss_height * loss_at_start(history))
            self._keep(history, self._finding.last_step, "critical" if left else "info")
        if self._finding and history.due and step > self._finding.last_step + self.rested:
            self._rest(progress(history))
        return self._finding

    def _rest(self, state: Progress) -> None:
        if self._finding and self._finding.severity == "critical" and state.learned and not state.failing:
            self._finding = replace(self._finding, severity="info", title="Gradient spike")

    def _take_medians(self, history: History) -> None:
        norms, losses = history.column("grad_norm", len(history) - self.window), history.column("loss", len(history) - self.window)
        norms, losses = norms[np.isfinite(norms)], losses[np.isfinite(losses)]
        if len(history) >= 10 and len(norms) and len(losses):
            self._median, self._median_loss = median(norms), median(losses)
            self._line = min(self.norm, max(self.times * self._median, self.least))

    def _large(self, history: History, step: int, norm: float) -> bool:
        if norm > self.norm:
            return True
        if not norm > max(self.times * self._median, self.least):
            return False
        norms = history.column("grad_norm", step - self.growing, step + 1)
        return bool((norms[1:] > norms[:-1]).all())

    def _keep(self, history: History, step: int, severity: Severity) -> None:
        """Tell of the largest norm so far, at the gravest that it has been."""
        known, norm = self._finding, history.value("grad_norm", step)
        if known is None or norm > self._peak or RANK[severity] > RANK[known.severity]:
            worst = severity if known is None else max(severity, known.severity, key=RANK.__getitem__)
            first = step if known is None else known.first_step
            if norm > self._peak:
                self._peak, self._peak_step = norm, step
            last = step if known is None else max(step, known.last_step)
            self._finding = replace(self._describe(history, self._peak_step, worst), first_step=first, last_step=last)
        elif step > known.last_step:
            self._finding = known.until(step)

    def _describe(self, history: History, step: int, severity: Severity) -> Finding:
        start = max(step - 20, 0)
        norms = history.column("grad_norm", start, step + 1)
        low = int((norms == np.fmin.reduce(norms)).argmax())  # NaN aside
        squares = history.layer_metric("grad_norm", step, step + 1)[0].astype(float) ** 2
        layer, share = "", 0.0
        if squares.sum() > 0 and math.isfinite(squares.sum()):
            layer, share = history.layers[int(squares.argmax())].name, float(squares.max() / squares.sum())
        row = history.row(step)
        clipped = row["clipped_norm"] < 0.5 * row["grad_norm"]
        contained = clipped and severity != "critical"
        where = f", {'nearly all' if share > 0.9 else f'{100 * share:.0f} %'} of it in {layer}" if layer else ""
        growth = (
            f"Norm {number(norms[low])} → {number(norms[-1])} in {plural(step - start - low, 'step', 'steps')}"
            if low < len(norms) - 1
            else f"Norm {number(norms[-1])}"
        )
        title = "Gradient spikes, held by clipping" if contained else "Gradient spike" if severity == "info" else "Exploding gradient"
        reached = f" The optimizer saw {number(row['clipped_norm'])}." if clipped else " All of it reached the optimizer."
        return Finding(
            "exploding_gradient", severity, title, step, step,
            (layer,) if layer else (), growth + where + "." + reached,
            "Clipping takes the length of such a gradient and leaves its direction." if contained
            else "One such step throws the weights far from where the gradient still meant anything.",
            () if contained else ("clipping.kind=norm", "clipping.kind=per_layer", *lower(history, row["lr"])),
        )  # fmt: skip

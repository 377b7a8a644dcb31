"""Gradients whose norm grows without bound. They are no fault where clipping contains them, or the loss stays calm."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from gradstudio.core.diagnosis.finding import RANK, Finding, Severity
from gradstudio.core.diagnosis.median import median
from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.suggested_rate import lower
from gradstudio.core.history import History
from gradstudio.core.text import number, plural


@dataclass
class ExplodingGradient:
    """Fires at a norm above `norm`, or at one above `times` the running median that has grown over `growing` steps.

    It is critical once the loss exceeds `loss_times` its running median within `patience` steps of a norm that reached
    the optimizer unclipped. It becomes a note again where the run does well `rested` steps later.
    """

    rule = "exploding_gradient"
    every_row = True

    norm: float = 100.0
    times: float = 10.0
    growing: int = 3
    least: float = 1.0  # a tenfold growth below this norm is no explosion
    loss_times: float = 2.0
    loss_height: float = 0.2  # share of the first loss: a jump from a loss near 0 is no explosion
    patience: int = 5
    window: int = 100
    rested: int = 50

    _finding: Finding | None = None
    _median: float = math.inf
    _line: float = 0.0  # a norm up to this is not large
    _median_loss: float = math.inf
    _peak: float = 0.0  # the norm in the finding
    _peak_step: int = 0
    _loose_until: int = -1  # up to this step a jump of the loss is due to a large norm that reached the optimizer

    def update(self, history: History, progress: Progress) -> Finding | None:
        step = len(history) - 1
        if step % 50 == 0 or step in (10, 20):
            self._take_medians(history)
        norm = history.value("grad_norm", step)
        if (
            norm > self._line and self._large(history, step, norm) and not history.value("skipped", step)
        ):  # a skipped one is the scaler's doing
            clipped = history.value("clipped_norm", step)
            if clipped > min(self.norm, self.times * self._median) or math.isnan(clipped):
                self._loose_until = step + self.patience
            self._keep(history, step, "info")
        if step <= self._loose_until and self._finding:
            loss = history.value("loss", step)
            left = not math.isfinite(loss) or loss > max(
                self.loss_times * self._median_loss, self.loss_height * progress.loss_at_start(history)
            )
            self._keep(history, self._finding.last_step, "critical" if left else "info")
        if self._finding and history.due and step > self._finding.last_step + self.rested:
            self._rest(progress.at(history))
        return self._finding

    def _rest(self, state: Progress) -> None:
        if self._finding and self._finding.severity == "critical" and state.learned and not state.failing:
            self._finding = replace(self._finding, severity="info", title="Gradient spike")

    def _take_medians(self, history: History) -> None:
        norms, losses = (
            history.column("grad_norm", len(history) - self.window),
            history.column("loss", len(history) - self.window),
        )
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
        """Keep the finding up to date: the largest norm so far, with the worst severity so far."""
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
            f"Gradient norm rose from {number(norms[low])} to {number(norms[-1])} in "
            f"{plural(step - start - low, 'step', 'steps')}"
            if low < len(norms) - 1
            else f"Gradient norm {number(norms[-1])}"
        )
        title = (
            "Gradient spikes, held by clipping"
            if contained
            else "Gradient spike"
            if severity == "info"
            else "Exploding gradient"
        )
        reached = (
            f" After clipping it was {number(row['clipped_norm'])}." if clipped else " All of it reached the optimizer."
        )
        return Finding(
            "exploding_gradient", severity, title, step, step,
            (layer,) if layer else (), growth + where + "." + reached,
            "Clipping reduced the gradient before it reached the optimizer, and the run goes on." if contained
            else ("One such update moves the weights so far that the loss jumps, and the next gradients may not lead "
                "back."),
            () if contained else ("clipping.kind=norm", "clipping.kind=per_tensor", *lower(history, row["lr"])),
        )  # fmt: skip

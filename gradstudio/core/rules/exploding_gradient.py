"""Gradients whose norm grows without bound. They are no fault if clipping contains them, or the loss stays calm."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from gradstudio.core.diagnosis import clipping_limit, mechanism, weight_decay
from gradstudio.core.diagnosis.episode import NO_EPISODE, Episode
from gradstudio.core.diagnosis.finding import RANK, Finding, Severity
from gradstudio.core.diagnosis.median import median
from gradstudio.core.diagnosis.progress import WINDOW, Progress
from gradstudio.core.diagnosis.suggested_rate import CLEARLY, lower
from gradstudio.core.history import History, up_to
from gradstudio.core.text import number, plural
from gradstudio.core.unknown import is_known

_AFTER = 10  # steps whose median loss shows how the run goes on
_HARMLESS = "Large gradients in a run that learns"
_WHOLE = 0.999  # share of a norm from which on nothing was removed
_LOW = 3.0  # times the smallest norm: from the last such step on it has risen


@dataclass
class ExplodingGradient:
    """Fires at a norm above `norm`, or at one above `times` the running median that has grown over `growing` steps.

    It is critical once the next loss after a norm that reached the optimizer is non-finite, or the next `patience`
    losses all exceed `loss_times` the median loss before; if only the accuracy shows how the task goes, once it stays
    as many times below its median. The loss of the step itself does not matter: it predates the update. It is also
    critical in a run that does badly after updates that add up to more than `thrown` times the weights, from the first
    large norm to the last. It becomes a note again if the run does not do badly and the loss is back."""

    rule = "exploding_gradient"
    every_row = True

    norm: float = 100.0
    times: float = 10.0
    growing: int = 3
    least: float = 1.0  # a tenfold growth below this norm is no explosion
    loss_times: float = 2.0
    loss_height: float = 0.2  # share of the first loss: a jump from a loss near 0 is no explosion
    patience: int = 5
    thrown: float = 1.0
    window: int = 100
    rested: int = 50  # steps after which a large norm begins another explosion

    _finding: Finding | None = None
    _median: float = math.inf
    _line: float = 0.0  # a norm up to this is not large
    _median_loss: float = math.inf
    _median_accuracy: float = math.nan
    _usual_loss: float = math.nan  # their values when the explosion began
    _usual_accuracy: float = math.nan
    _usual_norm: float = math.inf
    _before: str = ""  # the loss before the explosion, as reported
    _episode: Episode = NO_EPISODE  # large norms
    _loose: int = -1  # the latest step whose large norm reached the optimizer
    _since: int = -1  # and the first such step of this explosion
    _forgiven: bool = False  # whether it was reported in the past tense
    _earlier: Episode = NO_EPISODE  # the previous explosion with the largest norm
    _bad: int = 0  # consecutive steps since then at which the run did worse than before

    def update(self, history: History, progress: Progress) -> Finding | None:
        step = len(history) - 1
        if step % 50 == 0 or step in (10, 20):
            self._take_medians(history)
        if 0 <= self._since < step <= self._loose + self.patience:
            self._judge(history, step, progress)
        norm = history.value("grad_norm", step)
        if (
            norm > self._line
            and self._large(history, step, norm)
            and history.value("skipped", step) != 1
            and math.isfinite(history.value("loss", step))
        ):  # a skipped step is the scaler's doing, and a gradient of NaN is not large
            self._begin(history, step, progress)
            clipped = history.value("clipped_norm", step)
            if clipped > min(self.norm, self.times * self._median) or math.isnan(clipped):
                self._loose, self._since = step, step if self._since < 0 else self._since
            self._keep(history, step, "info")
        if self._finding and history.due:
            self._look_back(history, progress.at(history))
        return self._finding

    def _begin(self, history: History, step: int, progress: Progress) -> None:
        """Begin a new explosion, unless the previous one has not settled."""
        finding = self._finding
        if finding is not None and (
            step <= finding.last_step + self.rested or finding.severity == "critical" or progress.at(history).failing
        ):
            return  # a run that has not recovered is still in the previous explosion
        if self._since >= 0:
            self._earlier = max(self._earlier, self._episode, key=lambda each: each.peak)
        early = step < 10
        # The loss of the step itself predates the effect of its gradient, and one batch alone may be easy.
        self._usual_loss = median(history.column("loss", 0, step + 1)) if early else self._median_loss
        self._before = f"about {number(self._usual_loss)} before"
        self._usual_loss = max(self._usual_loss, self.loss_height / self.loss_times * progress.loss_at_start(history))
        self._usual_accuracy = median(history.column("accuracy")) if early else self._median_accuracy
        self._usual_norm = self._median
        self._finding, self._episode, self._since, self._bad, self._forgiven = None, NO_EPISODE, -1, 0, False

    def _judge(self, history: History, step: int, state: Progress) -> None:
        """Judge how the run does after a large norm."""
        loss, accuracy = history.value("loss", step), history.value("accuracy", step)
        if state.by_accuracy and self._usual_accuracy == self._usual_accuracy and math.isfinite(loss):
            worse = accuracy < self._usual_accuracy / self.loss_times
        else:
            worse = not loss <= self.loss_times * self._usual_loss
        self._bad = self._bad + 1 if worse else 0
        if self._finding and (self._bad >= self.patience or not math.isfinite(loss)):
            self._keep(history, self._finding.last_step, "critical")

    def _look_back(self, history: History, state: Progress) -> None:
        """Judge a finished explosion by the outcome of the run."""
        assert self._finding
        over = len(history) > self._finding.last_step + self.patience
        since, loss = self._since, median(history.column("loss", len(history) - _AFTER))
        back = state.by_accuracy or loss <= self.loss_times * self._usual_loss
        if state.is_known and not (state.failing or state.worse) and back:
            if over or state.well:
                self._forgive(history, state, loss, over)
            return
        if self._forgiven and state.worse:  # it was reported too early
            self._finding, self._forgiven = self._describe(history, "info"), False
        if self._finding.title == _HARMLESS and state.failing:
            self._finding = self._describe(history, "info")
        if since < 0 or self._finding.severity == "critical" or not state.failing:
            return
        moved = history.column("update_ratio", since, self._loose + 1)
        if moved[np.isfinite(moved)].sum() > self.thrown:
            self._keep(history, self._finding.last_step, "critical")

    def _forgive(self, history: History, state: Progress, loss: float, over: bool) -> None:
        """Turn the finding into a note: the run goes on well."""
        if self._finding and (self._finding.severity == "critical" or not self._forgiven):
            self._forgiven = over
            text = self._recovery(history, loss, state)
            self._finding = replace(
                self._finding, severity="info", remedies=(),
                title=self._note(history) if over else _HARMLESS,
                meaning=f"{'It is over' if over else 'They do no harm so far'}: {text}",
            )  # fmt: skip

    def _recovery(self, history: History, loss: float, state: Progress) -> str:
        if state.by_accuracy:
            taken = min(WINDOW, len(history))
            return f"the mean accuracy of the {taken} steps {up_to(history)} is {number(100 * state.accuracy)} %."
        taken = min(_AFTER, len(history))
        return f"the median loss of the {taken} steps {up_to(history)} is {number(loss)}; it was {self._before}."

    def _note(self, history: History) -> str:
        step = self._episode.peak_step
        contained = history.value("clipped_norm", step) < 0.5 * history.value("grad_norm", step)
        what = _norm_in_words(*_run_up(history, step))
        return f"{what}, held by clipping" if contained else f"{what} that passed"

    def _take_medians(self, history: History) -> None:
        norms, losses, accuracies = (
            history.column(name, len(history) - self.window) for name in ("grad_norm", "loss", "accuracy")
        )
        norms, losses = norms[np.isfinite(norms)], losses[np.isfinite(losses)]
        if len(history) >= 10 and len(norms) and len(losses):
            self._median, self._median_loss = median(norms), median(losses)
            self._median_accuracy = median(accuracies)
            self._line = min(self.norm, max(self.times * self._median, self.least))

    def _large(self, history: History, step: int, norm: float) -> bool:
        if norm > self.norm:
            return True
        if not norm > max(self.times * self._median, self.least):
            return False
        norms = history.column("grad_norm", step - self.growing, step + 1)
        return bool((norms[1:] > norms[:-1]).all())

    def _keep(self, history: History, step: int, severity: Severity) -> None:
        """Update the finding: the largest norm so far, with the worst severity so far."""
        finding, before = self._finding, self._episode
        self._episode = before.at(step, history.value("grad_norm", step))
        rose = self._episode.peak > before.peak
        self._forgiven = self._forgiven and not rose
        if finding is None or rose or RANK[severity] > RANK[finding.severity]:
            worst = severity if finding is None else max(severity, finding.severity, key=RANK.__getitem__)
            self._finding = self._describe(history, worst)
        elif step > finding.last_step:
            self._finding = finding.until(step)

    def _describe(self, history: History, severity: Severity) -> Finding:
        step = self._episode.peak_step
        norms, low = _run_up(history, step)
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
            f"{plural(len(norms) - 1 - low, 'step', 'steps')}, at step {step:,}"
            if _has_risen(norms, low)
            else f"The gradient norm was {number(norms[-1])} at step {step:,}"
        )
        reached = f" After clipping it was {number(row['clipped_norm'])}." * is_known(row["clipped_norm"])
        if row["clipped_norm"] >= _WHOLE * row["grad_norm"]:
            reached = " All of it reached the optimizer."
        if self._earlier.began and severity == "critical":
            reached += (
                f" In an earlier explosion it was {number(self._earlier.peak)} at step {self._earlier.peak_step:,}."
            )
        how = mechanism.clipping(history, step) + " " if clipped else ""
        decayed = weight_decay.overshoots(history, step)
        decay = f" {weight_decay.describe_decay(history, step)}" if decayed else ""
        decays = weight_decay.lower(history, step) if decayed else ()
        return Finding(
            "exploding_gradient", severity,
            "Exploding gradient" if severity != "info" else _norm_in_words(norms, low) + ", clipped" * clipped,
            self._episode.first, self._episode.last, (layer,) if layer else (),
            growth + where + "." + reached + mechanism.clipping_switched_off(history, step),
            (how + (mechanism.update(history, step) + decay) * (not contained)).strip(),
            ()
            if severity == "info"
            else decays or (*self._clipping(history, step), *lower(history, row["lr"])),
        )  # fmt: skip

    def _clipping(self, history: History, step: int) -> tuple[str, ...]:
        """Return how to clip: below a limit in force that was ineffective, at the usual norm before the explosion."""
        settings = mechanism.in_force(history, step)
        if settings is None or settings.clipping != "norm":
            return clipping_limit.by_norm(history, step, "clipping.kind=per_tensor")
        return (f"clipping.max_norm={self._usual_norm:.2g}",) if CLEARLY * self._usual_norm < settings.limit else ()


def _run_up(history: History, step: int) -> tuple[np.ndarray, int]:
    """Return the norms of the steps up to this one, and the index among them from which they have risen."""
    norms = history.column("grad_norm", max(step - 20, 0), step + 1)
    return norms, int(np.flatnonzero(norms <= _LOW * np.fmin.reduce(norms))[-1])  # NaN aside


def _has_risen(norms: np.ndarray, low: int) -> bool:
    return bool(norms[-1] > 2 * norms[low])


def _norm_in_words(norms: np.ndarray, low: int) -> str:
    """Return the name for a norm that is no explosion: one that rises from almost nothing is no spike."""
    return "Gradient spike" if _has_risen(norms, low) else "Large gradient"

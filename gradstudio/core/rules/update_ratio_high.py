"""Updates that are too large for the weights, in a run that does badly: the learning rate is too high."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradstudio.core.diagnosis import clipping_limit, mechanism, weight_decay
from gradstudio.core.diagnosis.cause_ranking import FIRST_UPDATE, OF_A_SPIKE
from gradstudio.core.diagnosis.episode import NO_EPISODE, Episode
from gradstudio.core.diagnosis.finding import Severity
from gradstudio.core.diagnosis.median import median
from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.rule import PeriodicRule
from gradstudio.core.diagnosis.suggested_rate import lower
from gradstudio.core.history import LOOK_EVERY, History
from gradstudio.core.text import number, percent, plural

_NONE = np.empty(0, np.int64)


@dataclass
class UpdateRatioHigh(PeriodicRule):
    """Fires if |update| / |weights| was above `ratio` in `steps` of `window` steps, or above `once` in one; or, in a
    run that does badly, if those above `ratio` add up to more than `in_all`, or one was above `alone` and the accuracy
    of a policy or a game fell by half after it. Critical while the run does badly.

    0.1 is the upper end of DeepDiagnosis (ICSE 2022) and of TheDeepChecker (log10 > -1); a healthy Adam starts there
    for some steps. A run that diverged is blamed on large updates only if there was one in its `recent` last steps."""

    rule = "update_ratio_high"
    ratio: float = 0.1
    steps: int = 10
    once: float = 1.0
    alone: float = 0.5  # after which the accuracy fell by half, if the loss shows nothing
    in_all: float = 1.5
    gap: int = 5  # steps
    recent: int = 20
    window: int = 50
    spiked: float = 10.0  # times the usual gradient, as for an explosion
    usual: int = 20  # number of steps before that define the usual level

    _seen: int = 0
    _high: tuple[tuple[int, float], ...] = ()  # the latest steps above the ratio, and their ratios
    _count: int = 0
    _first: int = -1  # the first of those that were too many
    _spikes: int = 0  # among them, those whose gradient had spiked
    _at_once: bool = False  # the very first update was longer than the weights
    _episode: Episode = NO_EPISODE  # large updates
    _broke: int = -1  # the step at which the run did
    # As last reported: the severity, whether the run did well, and whether it was long enough to tell.
    _known: tuple[Severity, bool, bool] = ("info", False, False)
    _failed: bool = False  # whether it did badly at the latest look

    def look(self, history: History, state: Progress) -> None:
        if state.all_zero:
            return  # any update is large relative to them
        new = self._take(history)
        far = sum(ratio for _, ratio in self._high) > self.in_all
        threw = state.stays_thrown_up and bool(self._high) and not self._high[0][0]
        if self._first < 0 and state.failing and (far or threw or self._fell(history, state)):
            self._blame(self._high[0][0])
        self._seen, self._failed = len(history), state.failing
        if self._first < 0:
            return
        if state.broken and self._broke < 0:
            self._broke = len(history) - 1  # a watched script may continue for long after it
        fell = self._fell(history, state)
        moved = state.struggling and (self._episode.peak > self.once or far)
        blamed = (state.failing or moved) and not (state.broken and self._episode.last < self._broke - self.recent)
        severity: Severity = "info" if not blamed else "critical" if state.failing else "warning"
        known = (severity, state.well, state.is_known)
        if not new and self._finding is not None and known == self._known:
            return
        self._known = known
        decayed, spike = self._describe_decay(history), self._of_a_spike(history)
        title = FIRST_UPDATE if self._at_once else OF_A_SPIKE if spike else "Updates too large"
        self.tell(
            history, severity, title if blamed else "Large updates",
            f"{plural(self._count, 'update was', 'updates were')} larger than {number(self.ratio)} times the weights, "
            f"counted from step {self._first:,} on; "
            f"the update of step {self._episode.peak_step:,} was {number(self._episode.peak)} times as large. About "
            "0.001 is usual.",
            (decayed or spike or self._too_high(history, state)) + fell if blamed else self._harmless(state),
            self._remedies(history, decayed=bool(decayed), spiked=bool(spike)) if blamed else (),
            first=self._first, last=self._episode.last,
        )  # fmt: skip

    def _take(self, history: History) -> bool:
        """Read the new rows, and return whether an update in them was too large."""
        ratios = history.column("update_ratio", self._seen)
        high = _NONE if ratios.max() <= self.ratio else self._sound(history, ratios)
        for at in high.tolist():
            step, ratio = self._seen + at, float(ratios[at])
            if 0 <= self._episode.last < step - self.window and not self._failed:
                self._begin_again()
            self._episode = self._episode.at(step, ratio)
            self._spikes += self._had_spiked(history, step)
            self._high = (*(other for other in self._high if other[0] > step - self.window), (step, ratio))
            if self._first >= 0:
                self._count += 1
            elif len(self._high) >= self.steps:
                self._blame(self._high[0][0])
            elif ratio > self.once:
                self._blame(self._run_up())
                self._at_once = step == 0
        return bool(len(high))

    def _harmless(self, state: Progress) -> str:
        """Return why these updates are not blamed."""
        if state.broken:
            between = plural(self._broke - self._episode.last, "step", "steps")
            return f"The last of them was {between} before the run diverged."
        if state.well:
            return "The run learns in spite of them."
        if state.is_known:
            return "Nothing shows that they did harm."
        return "After so few steps nothing shows yet whether they do harm."

    def _fell(self, history: History, state: Progress) -> str:
        """Return that the accuracy fell by half or more in the steps after the largest of the latest large updates, as
        a sentence with a leading space; "" if it did not, or if the loss shows how the task goes."""
        if not state.by_accuracy or not self._high:
            return ""
        step, ratio = max(self._high, key=lambda each: each[1])
        before, after = history.value("accuracy", step), history.column("accuracy", step + 1, step + 1 + self.gap)
        if ratio < self.alone or len(after) < self.gap or not after.mean() < 0.5 * before:
            return ""
        return (
            f" The accuracy was {percent(before)} at step {step:,}, and {percent(float(after.mean()))} in the "
            f"{len(after)} steps after it."
        )

    def _blame(self, first: int) -> None:
        """Report the large updates from a step on."""
        self._first, self._count = first, sum(step >= first for step, _ in self._high)

    def _run_up(self) -> int:
        """Return the first of the latest large updates with no more than `gap` steps from each to the next."""
        steps = [step for step, _ in self._high]
        while len(steps) > 1 and steps[-1] - steps[-2] <= self.gap:
            steps.pop()
        return steps[-1]

    def _begin_again(self) -> None:
        """Forget the large updates so far: the run did well after them, so later ones form a new episode."""
        self._high, self._count, self._first, self._at_once, self._spikes = (), 0, -1, False, 0
        self._episode, self._finding = NO_EPISODE, None

    def _too_high(self, history: History, state: Progress) -> str:
        """Return why the learning rate is too high: SGD's update is proportional to the gradient, Adam's is not."""
        began = (
            f" {state.course()} Where these weights were trained before, the optimizer has lost its state: load that "
            "too (`load_state_dict`), or begin with a low rate."
        ) * (state.threw_up and self._first == 0)
        settings = mechanism.in_force(history, self._episode.peak_step)
        name = {"adam": "Adam", "adamw": "AdamW", "rmsprop": "RMSprop"}.get(settings.optimizer if settings else "")
        return (
            "The learning rate is too high for these gradients: each such update overshoots."
            if name is None
            else f"{name} divides the gradient by its usual size, so an update is about as large as the learning rate "
            f"says, whatever the gradient: the rate is too high for these weights.{began}"
        )

    def _had_spiked(self, history: History, step: int) -> bool:
        """Return whether an update of SGD was large only because its gradient was far above the usual one."""
        settings = mechanism.in_force(history, step)
        if settings is None or settings.optimizer != "sgd" or step < self.usual:
            return False
        norms = history.column("clipped_norm", max(step - self.window, 0), step + 1)
        momentum = settings.momentum if 0 < settings.momentum < 1 else 0.0
        shares = (1 - momentum) * momentum ** np.arange(len(norms) - 1.0, -1, -1)
        return float((norms * shares).sum()) > self.spiked * median(norms[:-1])

    def _of_a_spike(self, history: History) -> str:
        """Return, as sentences, that the gradient caused these large updates; "" if it did not, or not most of them."""
        step = self._episode.peak_step
        if not (2 * self._spikes > self._count and self._had_spiked(history, step)):
            return ""
        before = history.column("clipped_norm", max(step - self.window, 0), step)
        norm = history.value("clipped_norm", step)
        return (
            f"The gradient made them large, not the rate alone: its norm was {number(norm)} at step "
            f"{step:,}, and {number(median(before))} in the median of the {len(before)} steps before."
        )

    def _describe_decay(self, history: History) -> str:
        """Return how weight decay contributed to these updates, as sentences; "" if it did not."""
        if weight_decay.outweighs(history, self._first, self._first + LOOK_EVERY):
            return f"{weight_decay.describe_decay(history, self._first)} The decay is larger than the gradient."
        if shrunk := weight_decay.shrinkage(history, self._first):
            return f"The weights are small, so that an update is large beside them.{shrunk}"
        return ""

    def _remedies(self, history: History, *, decayed: bool, spiked: bool) -> tuple[str, ...]:
        rates = lower(history, history.value("lr", self._episode.peak_step))
        if decayed and (decays := weight_decay.lower(history, self._first)):
            return decays  # the decay acts after clipping, and a lower rate slows the gradient as much
        settings = mechanism.in_force(history, self._episode.peak_step)
        if settings and settings.optimizer != "sgd":
            return rates  # the others divide by the size of the gradient, which clipping hardly changes
        before = 0 if spiked else 1  # rates that come before clipping
        return (*rates[:before], *clipping_limit.by_norm(history, self._episode.peak_step), *rates[before:])

    def _sound(self, history: History, ratios: np.ndarray) -> np.ndarray:
        """Return which of the new ratios are too large, without updates by a gradient that is partly NaN or Inf."""
        sound = (history.column("nonfinite", self._seen) == 0) & np.isfinite(history.column("loss", self._seen))
        return np.flatnonzero((ratios > self.ratio) & np.isfinite(ratios) & sound)

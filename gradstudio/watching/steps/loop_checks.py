"""The behaviour of a loop besides its steps: schedules stepped at another interval than intended, and passes in
training mode that train nothing, whose batches a batch norm includes in its running statistics."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler, ReduceLROnPlateau

from gradstudio.core.text import number, plural

_TURNS = 3  # times T_max after which a cosine has gone up and down again
_OVER = 1e-6  # share of its rate below which an optimizer hardly moves anything
_FEW = 10  # steps of the optimizer per step of the schedule: it is stepped once an epoch
_LEAST = 100  # steps of a run needed for a judgement
_RARE = 5  # steps per step that follows passes without a gradient: they are not part of the step


_ON_ITS_BEAT = (
    "`scheduler.step()` as often as the numbers of the schedule say: once an epoch, or after each `optimizer.step()` "
    "with its numbers in such steps"
)


_ABOVE_0 = "a factor above 0 from `lr_lambda`, such as `(step + 1) / n`: whole numbers (`//`, `int(...)`) round it to 0"


class _Beat(NamedTuple):
    """The state of a schedule at one look: how often it was stepped, and the rate as a share of the one that was
    set."""

    schedule: str
    stepped: int
    turn: int  # T_max of a cosine, 0 of any other
    length: float  # steps that it was made for, NaN if unknown
    share: float


class LoopChecks:
    """Checks the loop of one observer. `tell` is called with the rule, the evidence, the first step and the names."""

    def __init__(self, tell: Callable[..., None]) -> None:
        self._tell = tell
        self._beats: list[_Beat] = []  # at the latest look
        self._plateaus: dict[int, list[tuple[float, float]]] = {}  # best number and rate of each such schedule, by look
        self._first: dict[str, float] = {}  # share of each schedule at the first look
        self._over: int | None = None  # the look since which the rate is almost 0
        self._passes = self._bursts = 0  # without a gradient in training mode, and steps preceded by such passes
        self._first_burst = 0

    def on_passes(self, passes: int, step: int) -> None:
        """This many passes in training mode without a gradient were made before a step."""
        if step:  # before it a model may be called for trial, for example for the sizes of its layers
            self._first_burst = self._first_burst or step
            self._passes, self._bursts = self._passes + passes, self._bursts + 1

    def look(self, schedules: Sequence[weakref.ref[LRScheduler]], step: int) -> None:
        """Check the schedules at a step."""
        beats = [_beat(schedule) for each in schedules if (schedule := each()) is not None]
        self._beats = [beat for beat in beats if beat is not None] or self._beats
        for beat in self._beats:
            self._first.setdefault(beat.schedule, beat.share)
        for each in schedules:
            if isinstance(plateau := each(), ReduceLROnPlateau) and plateau.mode == "min" and plateau.last_epoch:
                seen = float(plateau.best), float(plateau.optimizer.param_groups[0]["lr"])
                self._plateaus.setdefault(id(plateau), []).append(seen)
        over = any(beat.share < _OVER for beat in self._beats)
        self._over = (step if self._over is None else self._over) if over else None

    def end(self, steps: int, parts: Sequence[tuple[str, nn.Module]], model: str) -> None:
        """Judge the observations of a run with this many steps. `parts` are modules with their names."""
        if self._bursts >= 2 and self._bursts * _RARE <= steps:
            norms = [name for name, part in parts if isinstance(part, _NormBase) and part.track_running_stats]
            if norms:
                text = (
                    f"{plural(self._passes, 'pass', 'passes')} without gradient, before {self._bursts:,} of {steps:,} "
                    f"steps, were made in training mode: {plural(len(norms), 'batch norm', 'batch norms')} took the "
                    f"statistics of their batches."
                )
                self._tell("statistics_of_validation", text, self._first_burst, known=model)
        if steps >= _LEAST and (text := self._of_a_plateau()):
            self._tell("schedule_off_beat", text, 0, known='`mode="max"` in `ReduceLROnPlateau(...)`')
        elif steps >= _LEAST:
            for beat in self._beats:
                if text := self._off_beat(beat, steps):
                    is_zero = beat.schedule == "LambdaLR" and not beat.share
                    self._tell("schedule_off_beat", *text, known=_ABOVE_0 if is_zero else _ON_ITS_BEAT)
                    return

    def _of_a_plateau(self) -> str:
        """Return that a schedule which waits for a decrease has seen nothing below its first number, and cut the
        rate."""
        for seen in self._plateaus.values():
            rates = {rate for _, rate in seen}
            if len({best for best, _ in seen}) == 1 and len(rates) > 2:
                return (
                    f"`ReduceLROnPlateau` has mode='min', and no number that it was given was below that of the first "
                    f"look, {number(seen[0][0])}. It took the rate from {number(max(rates))} to {number(min(rates))}. "
                    "An accuracy rises as a model learns."
                )
        return ""

    def _off_beat(self, beat: _Beat, steps: int) -> tuple[str, int] | None:
        """Return what is wrong with the interval of a schedule, and since which step."""
        text = f"`{beat.schedule}` was stepped {plural(beat.stepped, 'time', 'times')} in {steps:,} steps"
        if beat.turn and beat.stepped > _TURNS * beat.turn and beat.stepped * 2 > steps:
            turns = beat.stepped // beat.turn
            return f"{text}, and made for T_max={beat.turn:,}: the rate went down and up again, {turns:,} times.", 0
        if self._over is not None and self._over < steps / 2 and beat.share < _OVER:
            return (
                f"{text}: from step {self._over:,} on or before, the rate was {number(beat.share)} of the one set.",
                self._over,
            )
        ends = beat.length > _FEW * beat.stepped or (beat.length != beat.length and beat.share < 0.1)
        rises = self._first[beat.schedule] < beat.share < 0.5
        if 0 < beat.stepped * _FEW <= steps and rises and ends:
            return f"{text}: at the end its warmup has come to {number(beat.share)} of the rate that was set.", 0
        return None


def _beat(schedule: Any) -> _Beat | None:
    """Return the state of a schedule; None if it follows the loss or does not report it."""
    if isinstance(schedule, ReduceLROnPlateau) or not getattr(schedule, "base_lrs", None):
        return None
    group = schedule.optimizer.param_groups[0]
    whole = float(group.get("max_lr", schedule.base_lrs[0]))
    if not whole > 0:
        return None
    length = next(
        (float(steps) for name in ("total_steps", "total_iters") if (steps := getattr(schedule, name, None))), math.nan
    )
    turn = schedule.T_max if isinstance(schedule, CosineAnnealingLR) else 0
    return _Beat(type(schedule).__name__, schedule.last_epoch, turn, float(length), float(group["lr"]) / whole)

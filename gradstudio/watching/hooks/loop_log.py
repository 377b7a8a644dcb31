"""The order of the calls in a script's own loop, as far as torch lets it be observed. A definite fault in two
consecutive steps becomes a `Loop` to be judged; everything else stays unknown."""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable

from torch.optim.lr_scheduler import LRScheduler

from gradstudio.core.loop_calls import Call, Loop, right

NEAR = 0.5  # smallest share of the scaled gradient's norm at which a step counts as using the scaled gradient

_NOTHING: frozenset[str] = frozenset()


class LoopLog:
    """The observations of the current step."""

    def __init__(self) -> None:
        self._before: frozenset[str] = frozenset()  # the faults of the previous step
        self._told = False
        self._epochs: list[int | None] = []  # of the schedules, at the latest backward pass
        # Whether a backward pass found the gradients of the previous step, so that `stepped` must include those after
        # the step.
        self.wants_marks = False
        self._left: list[int] | None = None  # marks of the gradients after the previous step
        self._was_scaled = False  # whether the previous step had a scaled loss
        self._repeated = 0  # steps around the scaler with their own gradient
        self._begin()

    def _begin(self) -> None:
        self._first = True  # whether no backward pass was observed since the previous step
        self._kept = False  # whether the gradients of the previous step are part of this one's
        self._clipped = self._clipped_late = self._clipped_early = False
        self._after_forward: bool | None = None  # whether an early clip came after the forward pass, if known
        self._scheduled: set[int] = set()  # micro-batches after which the schedule moved
        self._clips: set[int] = set()  # micro-batches after which the gradient was clipped

    # ---- observations

    def on_zeroed(self) -> None:
        """A backward pass begins with every gradient missing or 0."""
        self._first = self._kept = False
        self._scheduled.clear()
        self._clips.clear()

    def on_gradients(self, marks: list[int]) -> None:
        """A backward pass begins with existing gradients."""
        if self._first:
            self.wants_marks, self._kept = True, marks == self._left
        self._first = False

    def on_clip(self, limit: float, micro_batches: int, *, gone: bool, after_forward: bool | None) -> None:
        """The script clips after this many micro-batches. `gone`: there was no gradient, or it was 0. `after_forward`:
        whether a forward pass came since the latest backward pass, None if none can."""
        if not math.isfinite(limit):
            return  # it only measures the norm
        if micro_batches:
            self._clipped = True
            self._clips.add(micro_batches)
        elif gone:
            self._clipped_early, self._after_forward = True, after_forward
        else:
            self._clipped_late = True

    def look_at_schedules(self, schedules: Iterable[weakref.ref[LRScheduler]], micro_batches: int) -> None:
        """A backward pass begins after this many micro-batches: check whether a schedule has moved since the previous
        one."""
        now = [getattr(schedule, "last_epoch", None) for each in schedules if (schedule := each()) is not None]
        if micro_batches and now != self._epochs:
            self._scheduled.add(micro_batches)
        self._epochs = now

    def on_step(
        self, micro_batches: int, *, scale: float, around: bool, skipped: bool, left: list[int] | None, lost: int = 0,
        cleared: bool = False,
    ) -> Loop | None:  # fmt: skip
        """Record that the step is made: from the gradient of `micro_batches`, with a loss scale, `around` its scaler or
        not, with these marks of the gradients after it. `lost`: number of earlier passes that were discarded;
        `cleared`: their gradients were. Return the calls if they are to be judged."""
        is_second, self._was_scaled = self._was_scaled and not micro_batches, scale != 1
        if is_second:
            self.wants_marks, is_same = True, left is not None and left == self._left
            self._repeated = self._repeated + 1 if is_same else 0
            if self._repeated == 2:  # `left` after the first of them is known from the second on
                loop = Loop((), 1, False, "static", False, heard=True)
                return loop._replace(calls=(*right(loop), "step_without_scaler"))
        heard = (
            cleared
            or lost
            or self._kept
            or self._clipped
            or self._clipped_late
            or self._clipped_early
            or self._scheduled
        )
        if micro_batches == 1 and not (around or heard or self._before or self._told):  # as in nearly every step
            self._left, self._first = left, True
            return None
        wrong = self._wrong(micro_batches, around=around, lost=lost, cleared=cleared)
        micro_batches += lost
        if not (wrong or self._before or self._told or self._clips or self._scheduled):
            self._left, self._first, self._kept = left, True, False
            self._clipped = self._clipped_late = self._clipped_early = False
            return None
        again, self._before, self._left = wrong & self._before, wrong, left
        if not (again or self._told):
            self._begin()
            return None
        clips = self._clipped or bool(again & {"late clip", "early clip"})
        after_forward = self._after_forward
        self._begin()
        if not micro_batches or (wrong and not again) or (skipped and "zero_grad" not in again):
            return None  # of a step that a scaler skips nothing is known beyond what its backward pass found
        self._told = bool(again)
        loop = Loop((), micro_batches, clips, "none" if scale == 1 else "static", False, heard=True)
        return loop._replace(calls=_calls(loop, again, after_forward))

    def _wrong(self, micro_batches: int, *, around: bool, lost: int, cleared: bool) -> frozenset[str]:
        """Return the faults of the current step."""
        faults: list[str] = []
        if self._kept:
            faults.append("zero_grad")
        if not self._clipped:
            faults += ["late clip"] * self._clipped_late + ["early clip"] * self._clipped_early
        if around:
            faults.append("around")
        if lost:
            faults.append("zero inside")
        if cleared:
            faults.append("zero late")
        if micro_batches > 1 and self._scheduled >= set(range(1, micro_batches)):
            faults.append("schedule")
        if micro_batches > 1 and self._clips >= set(range(1, micro_batches + 1)):
            faults.append("clip inside")
        return frozenset(faults) if faults else _NOTHING


def _calls(loop: Loop, wrong: frozenset[str], after_forward: bool | None) -> tuple[Call, ...]:
    """Return the calls of a correct step with the faults inserted. `after_forward` is for an early clip."""
    calls: list[Call] = list(right(loop))
    if "clip inside" in wrong:
        calls.remove("clip")
        _after_each_backward(calls, "clip")
    if "schedule" in wrong:
        _after_each_backward(calls, "schedule")
    last = calls.index("step")
    if "around" in wrong:
        calls[last] = "step_without_scaler"
        calls.remove("unscale")
    if "late clip" in wrong:
        calls.remove("clip")
        calls.append("clip")
    elif "early clip" in wrong:
        calls.remove("clip")
        calls.insert(2 if after_forward else 1, "clip")
        if after_forward is None:
            calls = [call for call in calls if call != "forward"]
    if "zero late" in wrong:
        calls.remove("zero_grad")
        calls.insert(last - 1, "zero_grad")
    if "zero inside" in wrong:
        first = "forward" if "forward" in calls else "backward"
        calls = [each for call in calls[1:] for each in (("zero_grad", call) if call == first else (call,))]
    if "zero_grad" in wrong:
        calls.remove("zero_grad")
    return tuple(calls)


def _after_each_backward(calls: list[Call], call: Call) -> None:
    for place in reversed([place for place, each in enumerate(calls) if each == "backward"]):
        calls.insert(place + 1, call)

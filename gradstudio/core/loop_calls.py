"""The calls that a training loop makes at one step, and their correct order.

A correct step, as a grammar:

    zero_grad  (forward backward) x N  [unscale]  [clip]  step  [update]  [schedule]

with sharpness-aware minimization

    zero_grad  (forward backward) x N  perturb  zero_grad  (forward backward) x N  restore  ...

with `unscale` under loss scaling, `clip` if gradients are clipped, `update` under dynamic scaling, and `schedule`
unless the scaler skipped the step. A wrong loop is detected here even if the loss looks fine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

Call = Literal[
    "zero_grad", "forward", "backward", "perturb", "restore", "divide", "unscale", "clip", "step",
    "step_without_scaler", "update", "schedule",
]  # fmt: skip


LONGEST_GROUP = 6  # calls per micro-batch in a loop over micro-batches, at most


class Loop(NamedTuple):
    """The calls of a step, in order, and what the step was configured to do. `heard`: from a user's own script, of
    which only some calls are observed. Schedules are left out there if they are correct, and forward passes if the time
    of their calls is unknown."""

    calls: tuple[Call, ...]
    micro_batches: int
    clipping: bool
    scaling: Literal["dynamic", "static", "none"]
    skipped: bool
    heard: bool = False


def in_words(calls: tuple[Call, ...]) -> str:
    """Return the calls on one line, with repetitions counted: 'zero_grad, 4 x (forward, backward), clip, step'."""
    parts, at = [], 0
    while at < len(calls):
        length, count = _repetition(calls[at:])
        group = ", ".join(calls[at : at + length])
        parts.append(f"{count} × ({group})" if count > 1 else group)
        at += length * count
    return ", ".join(parts)


def _repetition(calls: tuple[Call, ...]) -> tuple[int, int]:
    """Return the length of the group at the start of the calls, and how often it is repeated: the group that covers
    most calls, or (1, 1) if no group of at least two calls is repeated."""
    best = (1, 1)
    for length in range(2, min(LONGEST_GROUP, len(calls) // 2) + 1):
        count = 1
        while calls[length * count : length * (count + 1)] == calls[:length]:
            count += 1
        if count > 1 and length * count > best[0] * best[1]:
            best = (length, count)
    return best


def right(loop: Loop) -> tuple[Call, ...]:
    """Return the calls of a correct step with the same configuration."""
    micro_batch: tuple[Call, ...] = ("forward", "backward")
    if loop.heard and loop.calls and "forward" not in loop.calls:
        micro_batch = ("backward",)
    calls: list[Call] = ["zero_grad", *micro_batch * loop.micro_batches]
    if "perturb" in loop.calls:
        calls = [*calls, "perturb", *calls, "restore"]
    if loop.scaling != "none":
        calls.append("unscale")
    if loop.clipping:
        calls.append("clip")
    calls.append("step")
    if loop.scaling == "dynamic":
        calls.append("update")
    if "schedule" in loop.calls if loop.heard else not loop.skipped:
        calls.append("schedule")
    return tuple(calls)


def without_skip(loop: Loop) -> Loop:
    """Return the loop without the scaler's skip, so that a skipped step counts as the same loop as its neighbours. A
    skipped step that still advanced the schedule stays as it is: that is a fault."""
    if not loop.skipped or loop.calls[-1] == "schedule":
        return loop
    return loop._replace(calls=(*loop.calls, "schedule"), skipped=False)


class Fault(NamedTuple):
    """A fault in the order, as a sentence, and the mistakes that lead to it."""

    text: str
    mistakes: tuple[str, ...]


def faults(loop: Loop) -> list[Fault]:
    """Return what is wrong with the order of the calls; empty for a correct loop."""
    due = right(loop)
    if loop.calls == due:
        return []
    second = _second_passes(loop)
    detected = [fault for broken, fault in _FAULTS if broken(second)]
    return detected or [Fault(f"{in_words(loop.calls)} was called where {in_words(due)} is due.", ())]


def _second_passes(loop: Loop) -> Loop:
    """Return the loop without the first passes of sharpness-aware minimization, which only determine where to move."""
    if "perturb" not in loop.calls:
        return loop
    calls = loop.calls[loop.calls.index("perturb") + 1 :]
    return loop._replace(calls=tuple(call for call in calls if call != "restore"))


def _before(loop: Loop, one: Call, other: Call) -> bool:
    """Return whether the first `one` comes before the first `other`."""
    calls = loop.calls
    return one in calls and other in calls and calls.index(one) < calls.index(other)


def _last_backward(loop: Loop) -> int:
    return max((index for index, call in enumerate(loop.calls) if call == "backward"), default=-1)


def _step(loop: Loop) -> int:
    steps = (index for index, call in enumerate(loop.calls) if call in ("step", "step_without_scaler"))
    return next(steps, len(loop.calls))


def _inside(loop: Loop, call: Call) -> bool:
    """Return whether `call` occurs between two micro-batches."""
    return call in loop.calls[_first_backward(loop) : _last_backward(loop)]


def _first_backward(loop: Loop) -> int:
    return next((index for index, call in enumerate(loop.calls) if call == "backward"), 0)


def _first_clip_is_early(loop: Loop) -> bool:
    """Return whether the gradients are clipped before there are any."""
    return "clip" in loop.calls[: _first_backward(loop)]


def _clips_scaled(loop: Loop) -> bool:
    """Return whether gradients are clipped while they still carry the loss scale."""
    return _before(loop, "clip", "unscale") and not _first_clip_is_early(loop)


_SCALED = "clip comes before unscale: it measures gradients that still carry the loss scale."


_FAULTS: tuple[tuple[Callable[[Loop], bool], Fault], ...] = (
    (
        lambda loop: "zero_grad" not in loop.calls,
        Fault("zero_grad is missing: every gradient adds to those of the steps before.", ("never_zero_grad",)),
    ),
    (
        lambda loop: "zero_grad" in loop.calls[_last_backward(loop) + 1 : _step(loop)],
        Fault(
            "zero_grad comes between backward and step: the step finds no gradient, so nothing is trained.",
            ("never_zero_grad",),  # its own line says where the call belongs
        ),
    ),
    (
        lambda loop: loop.calls.count("zero_grad") > 1 and loop.micro_batches == 1,
        Fault(
            "zero_grad is called twice: with one micro-batch that does nothing, with more it loses all but the last.",
            ("zero_grad_each_micro_batch",),
        ),
    ),
    (
        lambda loop: loop.calls.count("zero_grad") > 1 and loop.micro_batches > 1,
        Fault(
            "zero_grad stands inside the loop over micro-batches: all but the last one are lost.",
            ("zero_grad_each_micro_batch",),
        ),
    ),
    (
        lambda loop: loop.calls.count("backward") < loop.micro_batches,
        Fault(
            "Micro-batches are missing: the gradient is divided by more micro-batches than were added up.",
            ("drop_last_micro_batches",),
        ),
    ),
    (
        lambda loop: _inside(loop, "clip"),
        Fault(
            "clip stands inside the loop over micro-batches: it acts on parts of the gradient, not on their sum.",
            ("clip_each_micro_batch",),
        ),
    ),
    (
        _first_clip_is_early,
        Fault("clip comes before backward: there is no gradient to clip yet.", ("clip_before_backward",)),
    ),
    (
        lambda loop: "divide" in loop.calls,
        Fault(
            "The gradients are divided after every backward pass, so those of earlier micro-batches are divided again "
            "and again: divide the loss instead.",
            ("divide_each_micro_batch",),
        ),
    ),
    (
        lambda loop: _clips_scaled(loop) and not _inside(loop, "clip") and loop.micro_batches > 1,
        Fault(_SCALED, ("clip_before_unscale",)),
    ),
    (
        lambda loop: _clips_scaled(loop) and loop.micro_batches == 1,
        Fault(_SCALED, ("clip_before_unscale", "clip_each_micro_batch")),
    ),
    (
        lambda loop: "clip" in loop.calls[_step(loop) :],
        Fault("clip comes after step: the weights have moved already.", ("clip_after_step",)),
    ),
    (
        lambda loop: loop.calls.count("unscale") > 1,
        Fault("unscale is called twice: the gradients are divided by the loss scale twice.", ("unscale_twice",)),
    ),
    (
        lambda loop: "step_without_scaler" in loop.calls and "step" in loop.calls,
        Fault(
            "step is called twice for one gradient, by the scaler and around it: each update is made twice, and one "
            "also where the scaler skips it.",
            ("step_without_scaler",),
        ),
    ),
    (
        lambda loop: "step_without_scaler" in loop.calls,
        Fault(
            "step goes around the scaler: an overflow is not skipped but reaches the weights.", ("step_without_scaler",)
        ),
    ),
    (
        lambda loop: loop.scaling == "dynamic" and "update" not in loop.calls,
        Fault(
            "update is missing: the scaler waits for it after its step, so that torch refuses the next unscale.",
            ("never_update_scaler",),
        ),
    ),
    (
        lambda loop: _inside(loop, "schedule"),
        Fault(
            "schedule stands inside the loop over micro-batches: the learning rate changes too fast.",
            ("scheduler_each_micro_batch",),
        ),
    ),
)

"""When the numbers of a step are read: at once, or some steps later from a device that works asynchronously.

Both ways have the same effect on the weights, to the last bit. The host would wait for such a device at every number
that it reads. So the step is measured on the device (gauges/on_device.py), and its figures are copied to the host while
training goes on. They are read a fixed number of steps later, never as soon as they arrive: a run has the same result
however fast the device is."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from gradstudio.core.loop_calls import Loop
from gradstudio.core.row import Row, Settings
from gradstudio.core.unknown import UNKNOWN
from gradstudio.engine.gauges.every_step import Change, Gauges, Gradient, by_layer, coefficient, cosine
from gradstudio.engine.gauges.on_device import DeviceGauges
from gradstudio.engine.passes.flat import Flat
from gradstudio.engine.step.accumulation import means, policy_figures
from gradstudio.engine.step.checks import Checks
from gradstudio.engine.step.clipping import CLIPPING, CLIPPING_ON_DEVICE, Rules
from gradstudio.engine.torch_internals import device_kernels

LAG = {"cuda": 4}  # steps from a step to its row, by type of device; on all others a row is read at once


@dataclass(slots=True)
class StepFacts:
    """The facts of a finished step that the host knows without reading from the device."""

    step: int
    lr: float
    scale: float
    loop: Loop
    settings: Settings
    checks: Checks
    judged: bool = True  # whether there is an accuracy
    unused: tuple[str, ...] | None = None  # parameters that received no gradient; None: not observed


class Reading(Protocol):
    """How the numbers of a step are read. The step calls `begin` first and `rows` last, and between them the others at
    each measuring point."""

    clipping: Rules

    def begin(self) -> None:
        """Begin a step."""

    def on_pass(self, figures: Tensor) -> None:
        """Record the loss, the accuracy and the largest absolute output of a pass, (3,); (7,) of a policy."""

    def gradient(self, gradients: Tensor, scale: float = 1.0) -> None:
        """Measure the gradients, which may carry the factor `scale`. The first ones of a step are its true gradient; of
        later, modified ones only the norm is measured."""

    def on_clip(self, before: Tensor, after: Tensor, *, by_value: bool = False) -> None:
        """Measure the gradients before and after clipping. If a step clips twice, the first ones count."""

    def change(self, before: Tensor, after: Tensor, gradients: Tensor) -> None:
        """Measure the weights before the update by these gradients, and its effect on them."""

    def rows(self, made: StepFacts) -> list[Row]:
        """Return the rows that are due at the end of the step."""
        ...


class ImmediateReading:
    """Reads each number as soon as it is measured, and returns the row of a step at its end."""

    clipping: Rules = CLIPPING

    def __init__(self, flat: Flat) -> None:
        self._gauges = Gauges(flat.layout)

    def begin(self) -> None:
        self._started = time.perf_counter()
        self._passes: list[list[float]] = []
        self._gradient: Gradient | None = None
        self._norm, self._clip_coef, self._clip_cosine = 0.0, 1.0, 1.0
        self._unclipped: tuple[Tensor, float] | None = None  # the gradients before the first clipping, and their norm
        self._cut_shares: np.ndarray | float = UNKNOWN

    def on_pass(self, figures: Tensor) -> None:
        self._passes.append(figures.tolist())

    def gradient(self, gradients: Tensor, scale: float = 1.0) -> None:
        if self._gradient is None:
            self._gradient = self._gauges.measure_gradient(gradients, scale)
            self._norm = self._gradient.norm if scale == 1 else self._gauges.norm(gradients)
        else:
            self._norm = self._gauges.norm(gradients)

    def on_clip(self, before: Tensor, after: Tensor, *, by_value: bool = False) -> None:
        norm, self._norm = self._norm, self._gauges.norm(after)
        self._clip_coef *= coefficient(norm, self._norm)
        if by_value and self._unclipped is None:
            self._cut_shares = self._gauges.changed_shares(before, after)
        unclipped, norm = self._unclipped = self._unclipped or (before, norm)
        if norm != self._norm:  # or nothing was clipped
            self._clip_cosine = cosine(self._gauges.product(unclipped, after), norm, self._norm)

    def change(self, before: Tensor, after: Tensor, gradients: Tensor) -> None:
        self._change = self._gauges.measure_change(before, after, gradients)

    def rows(self, made: StepFacts) -> list[Row]:
        assert self._gradient is not None, "a step measures its gradient"
        seconds = time.perf_counter() - self._started
        clipped = _ClippedGradient(self._norm, self._clip_coef, self._clip_cosine, self._cut_shares)
        return [_row(made, self._passes, self._gradient, clipped, self._change, seconds)]


class _ClippedGradient(NamedTuple):
    """The gradient that the optimizer received, besides the one before clipping."""

    norm: float
    coefficient: float = 1.0
    cosine: float = 1.0
    cut_shares: np.ndarray | float = UNKNOWN


@dataclass(slots=True)
class _Unread:
    """A step whose figures are on their way to the host."""

    made: StepFacts
    names: tuple[str, ...]
    figures: Tensor
    passes: int
    there: torch.cuda.Event | None  # None if there is nothing to wait for
    seconds: float = 0.0


class DelayedReading:
    """Measures on the device, never waits for it in a step, and returns the row of a step `lag` steps later. Such a
    step must not contain anything that the host has to read."""

    clipping: Rules = CLIPPING_ON_DEVICE

    def __init__(self, flat: Flat, lag: int) -> None:
        self._lag = lag
        self._gauges = DeviceGauges(flat.layout, flat.weights.device)
        self._unread: deque[_Unread] = deque()

    def begin(self) -> None:
        self._started = time.perf_counter()
        self._passes: list[Tensor] = []
        self._measured = False  # True once the true gradient is measured

    def on_pass(self, figures: Tensor) -> None:
        self._passes.append(figures.clone())  # the next pass writes to the same place

    def gradient(self, gradients: Tensor, scale: float = 1.0) -> None:
        if self._measured:
            self._gauges.measure("unclipped", gradients)
        else:
            self._gauges.measure_gradient(gradients)
        self._measured = True

    def on_clip(self, before: Tensor, after: Tensor, *, by_value: bool = False) -> None:
        self._gauges.measure("clipped", after)
        self._gauges.measure_product("kept", before, after)
        if by_value:
            self._gauges.measure_cut(before, after)

    def change(self, before: Tensor, after: Tensor, gradients: Tensor) -> None:
        self._gauges.measure_change(before, after, gradients)

    def rows(self, made: StepFacts) -> list[Row]:
        names, figures = self._gauges.figures(self._passes)
        figures, there = _send_to_host(figures)
        latest = _Unread(made, names, figures, len(self._passes), there)
        self._unread.append(latest)
        rows = [self._read(self._unread.popleft())] if len(self._unread) > self._lag else []
        latest.seconds = time.perf_counter() - self._started
        return rows

    def settle(self) -> list[Row]:
        """Return the rows of all unread steps. The time that the host waits for them is divided among them."""
        if not self._unread:
            return []
        started = time.perf_counter()
        unread, self._unread = self._unread, deque()
        _wait(unread[-1])
        waited = (time.perf_counter() - started) / len(unread)
        return [self._read(each, waited) for each in unread]

    def _read(self, unread: _Unread, waited: float = 0.0) -> Row:
        _wait(unread)
        gradient, change, cut, norms, passes = self._gauges.read(unread.names, unread.figures.numpy())
        before = norms.get("unclipped", gradient.norm)
        after = norms.get("clipped", before)
        clipped = _ClippedGradient(after, coefficient(before, after) if "clipped" in norms else 1.0, cut_shares=cut)
        if "clipped" in norms and before != after:
            clipped = clipped._replace(cosine=cosine(norms["kept"], before, after))
        seconds = unread.seconds + waited
        return _row(unread.made, passes.reshape(unread.passes, -1).tolist(), gradient, clipped, change, seconds)


def late_reading(flat: Flat, device: str) -> DelayedReading | None:
    """Return the delayed reading for the steps of this device; None if the host reads them at once."""
    lag = LAG.get(torch.device(device).type)
    return DelayedReading(flat, lag) if lag is not None and device_kernels.segment_sums_possible() else None


def _row(
    facts: StepFacts,
    passes: list[list[float]],
    gradient: Gradient,
    clipped: _ClippedGradient,
    change: Change,
    seconds: float,
) -> Row:
    """Return the row of a step."""
    loss, accuracy = means(passes)
    ratio, kl, entropy, reward = policy_figures(passes)
    checks = facts.checks
    return Row(
        step=facts.step, loss=loss, grad_norm=gradient.norm, clipped_norm=clipped.norm, clip_coef=clipped.coefficient,
        lr=facts.lr, scale=facts.scale, skipped=facts.loop.skipped, nonfinite=gradient.nonfinite,
        update_ratio=change.update_ratio, weight_norm=change.weight_norm,
        accuracy=accuracy if facts.judged else UNKNOWN, step_seconds=seconds,
        layers=by_layer(gradient, change, clipped.cut_shares), loop=facts.loop, settings=facts.settings,
        joined_difference=checks.joined_difference, joined_problem=checks.joined_problem,
        accumulated=checks.accumulated, activations=checks.activations,
        test_accuracy=checks.tested.accuracy, head_cosine=checks.tested.head_cosine,
        clip_cosine=clipped.cosine, update_cosine=cosine(-change.along_gradient, clipped.norm, change.norm),
        time_gradient=checks.time_gradient,
        unused=facts.unused, attention_logit=checks.attention[0], attention_entropy=checks.attention[1],
        policy_ratio=ratio, policy_kl=kl, policy_entropy=entropy, policy_reward=reward,
    )  # fmt: skip


def _send_to_host(figures: Tensor) -> tuple[Tensor, torch.cuda.Event | None]:
    """Send figures to the host. Returns their destination and the event that signals their arrival."""
    if not figures.is_cuda:
        return figures, None
    on_host = torch.empty(figures.shape, dtype=figures.dtype, pin_memory=True).copy_(figures, non_blocking=True)
    there = torch.cuda.Event()
    there.record(torch.cuda.current_stream(figures.device))
    return on_host, there


def _wait(unread: _Unread) -> None:
    if unread.there is not None:
        unread.there.synchronize()

"""The trainer of one experiment, and its one optimizer step, which reads top to bottom like the maths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from gradstudio.core.experiment import Experiment
from gradstudio.core.history import LOOK_EVERY
from gradstudio.core.loop_calls import Loop
from gradstudio.core.row import Row
from gradstudio.engine import step_requests
from gradstudio.engine.gauges.reached_parameters import ReachedParameters
from gradstudio.engine.step import (
    clipping,
    loss_scale,
    optimizers,
    qk_clip,
    schedules,
    sharpness_aware,
    weight_format,
)
from gradstudio.engine.step.accumulation import UnclippedSum, remaining_micro_batches
from gradstudio.engine.step.checks import NO_CHECKS, Checks, Requests
from gradstudio.engine.step.gradients import add_noise, centralize
from gradstudio.engine.step.loss_reading import LossReading
from gradstudio.engine.step.observer import Observer
from gradstudio.engine.step.reading import ImmediateReading, Reading, StepFacts, late_reading
from gradstudio.engine.trainer_state import TrainerState


class Trainer(TrainerState):
    """Makes the steps of one experiment. Without `measured` the CPU reads only the loss."""

    def __init__(self, experiment: Experiment, *, measured: bool = True) -> None:
        super().__init__(experiment)
        self.observer = Observer()
        self._reached: ReachedParameters | None = None  # in a step that records which parameters are used
        self._at_once: Reading = ImmediateReading(self.flat) if measured else LossReading(self.flat)
        self._late = late_reading(self.flat, self.device)
        self._loss_alone = not measured and self._late is None

    def steps(self) -> Iterator[Row]:
        """Train without end. Each row is read as soon as its step is made."""
        while True:
            yield from self.advance()
            yield from self.settle()

    def advance(self) -> list[Row]:
        """Make one step, and return the rows that are available by then. On the CPU this is the row of the step. On a
        device whose rows are read later it is that of an earlier step, or none, or all that were not read yet."""
        with self.subject.own_random_state(), self._note_reached_parameters():
            if self._late is None:
                return self._step(self._at_once)
            if self._host_looks():
                return [*self._late.settle(), *self._step(self._at_once)]
            return self._step(self._late)

    @contextmanager
    def _note_reached_parameters(self) -> Iterator[None]:
        """Record which parameters the loss depends on, in the steps after which rules look. A recorded pass depends on
        all of them."""
        if self.subject.recorded or self._loss_alone or (self.step + 1) % LOOK_EVERY:
            yield
            return
        with ReachedParameters(self.flat.named) as self._reached:
            try:
                yield
            finally:
                self._reached = None

    def settle(self) -> list[Row]:
        """Return the rows of the steps that were made and not read yet, in order. The host waits for the device."""
        return [] if self._late is None else self._late.settle()

    # ---- the step: batches, passes, gradient, update, row; each mistake is an `if` at its place in the loop

    def _step(self, reading: Reading) -> list[Row]:
        """Make one optimizer step, and return the rows that are due."""
        reading.begin()
        self.observer.calls.clear()
        knobs, batches = self.experiment, self.next_batches()
        checks = NO_CHECKS
        if self.requests.any:
            with self.subject.preserved_random_state():
                checks = step_requests.before_climb(self, batches[0])
        origin = self._climb(batches, reading) if knobs.optimizer.sam_rho > 0 else None
        if checks is not NO_CHECKS:
            with self.subject.preserved_random_state():
                step_requests.before_passes(self, batches, checks, self.compute)
            self.requests = Requests()

        unclipped = self._make_passes(batches, reading, counted=origin is None)
        if origin is not None:
            self._come_back(origin)
        scale, scaling = self.scaler.get_scale(), loss_scale.kind(self.scaler)
        checks.compare_sum(self.flat.grads)
        self._finish_reduction(reading, scale)
        self._finish_gradient(reading, checks, scaling, scale, unclipped)
        lr, skipped = self._update(reading, scaling)

        loop = Loop(tuple(self.observer.calls), len(batches), knobs.clipping.kind != "none", scaling, skipped)
        number, self.step = self.step, self.step + 1
        judged = self.subject.judged
        unused = None if self._reached is None else self._reached.unused_names()
        return reading.rows(StepFacts(number, lr, scale, loop, self._settings_in_force(), checks, judged, unused))

    def _make_passes(self, batches: list[Any], reading: Reading, *, counted: bool) -> UnclippedSum | None:
        """Accumulate the gradients of all micro-batches, times the loss scale. Return their true sum if each of them
        was clipped. `counted`: the losses are those of the step."""
        mistakes, flat, knobs = self.experiment.mistakes, self.flat, self.experiment.clipping
        divisor = 1 if mistakes.unscaled_accumulation or mistakes.divide_each_micro_batch else len(batches)
        shares = None if mistakes.normalize_each_micro_batch else self.subject.shares(batches)
        clip = partial(clipping.one_example, flat, knobs, divisor) if knobs.kind == "per_example" else None
        unclipped = UnclippedSum(flat) if mistakes.clip_each_micro_batch or clip else None
        if not mistakes.never_zero_grad:
            self._zero_grad()
        if qk_clip.begin(self.model, knobs.qk_clip if self.experiment.applies("clipping.qk_clip") else 0.0):
            self.passes.forget()
        if mistakes.clip_before_backward:
            self._clip(reading, measured=False)
        for index, batch in enumerate(
            batches[: remaining_micro_batches(len(batches))] if mistakes.drop_last_micro_batches else batches
        ):
            if mistakes.zero_grad_each_micro_batch:
                self._zero_grad()
            if mistakes.scheduler_each_micro_batch and index > 0:
                self._advance_schedule()
            if unclipped:
                unclipped.set_aside()
            figures = self._forward_backward(batch, divisor, None if shares is None else shares[index])
            if counted:
                reading.on_pass(figures)
            if unclipped:
                unclipped.put_back(clip)
            if mistakes.divide_each_micro_batch and len(batches) > 1:
                self._divide([flat.gradients, *([unclipped.sum] if unclipped else [])], len(batches))
            if mistakes.clip_each_micro_batch:
                self._clip(reading, measured=False)
        return unclipped

    def _finish_gradient(
        self, reading: Reading, checks: Checks, scaling: str, scale: float, unclipped: UnclippedSum | None
    ) -> None:
        """Turn the sum, which carries the loss `scale`, into the gradient for the optimizer."""
        knobs, mistakes, flat = self.experiment, self.experiment.mistakes, self.flat
        if unclipped:  # the true gradient is the sum of micro-batches that were not clipped
            reading.gradient(unclipped.sum, scale)
            if knobs.clipping.kind != "none":
                reading.on_clip(unclipped.sum, flat.gradients, by_value=knobs.clipping.kind == "value")
        if mistakes.clip_before_unscale:
            reading.gradient(flat.gradients, scale)
            self._clip(reading)
        self._unscale(scaling)
        reading.gradient(flat.gradients)  # the true one, unless a mistake clips before this
        self.spike_policy.look(flat.grads, knobs.clipping)
        if mistakes.unscale_twice:
            self._unscale(scaling)
        checks.compare_joined(flat.grads)
        if knobs.gradients.centralize:
            centralize(flat.grads)
        if knobs.gradients.noise_std > 0:
            add_noise(flat.grads, knobs.gradients.noise_std, self.gradient_noise)
        if knobs.gradients.centralize or knobs.gradients.noise_std > 0 or mistakes.unscale_twice:
            reading.gradient(flat.gradients)
        if not mistakes.clips_elsewhere:
            self._clip(reading)

    def _update(self, reading: Reading, scaling: str) -> tuple[float, bool]:
        """Let the optimizer, the loss scale and the schedule make their step. Return the learning rate, and whether the
        update was skipped: by the scaler at an overflow, or at a spike."""
        precision, mistakes, flat = self.experiment.precision, self.experiment.mistakes, self.flat
        lr = self._set_learning_rate()
        self.before.copy_(flat.weights)
        self.moved, made = True, self.updates.made
        clipping, step = self.experiment.clipping, self.step
        self.spike_policy.act(clipping, step, flat.weights.data, self.state, self.optimizer)
        bare = mistakes.step_without_scaler and scaling == "dynamic"
        self.observer.call("step_without_scaler" if bare else "step")
        if not self.spike_policy.is_spike:
            self.optimizer.step() if bare else self.scaler.step(self.optimizer)
            if self.updates.made > made:
                qk_clip.shrink(self.model, clipping.qk_clip)
            weight_format.keep(self._weights, precision.weights, self.experiment.run.seed, self.step)
        reading.change(self.before, flat.weights, flat.gradients)
        if mistakes.clip_after_step:
            self._clip(reading, measured=False)
        self._update_scale(scaling)
        skipped = self.updates.made == made
        if not skipped:
            self._advance_schedule()
        return lr, skipped

    # ---- what the step calls

    def _zero_grad(self) -> None:
        self.observer.call("zero_grad")
        self.flat.clear()

    def _forward_backward(self, batch: Sequence[Any], divisor: int, share: Tensor | None = None) -> Tensor:
        """Add the gradient of a micro-batch, whose loss is multiplied by its `share`, (). Return its loss, its accuracy
        and its largest absolute output, (3,), or only its loss, (1,), on the device and valid until the next pass."""
        self.observer.call("forward")
        self.observer.call("backward")
        compute = partial(self.compute, divisor=divisor, shared=share is not None)
        return self.passes.make(divisor, compute, batch if share is None else (*batch, share))[1]

    def compute(self, *batch: Any, divisor: int, shared: bool = False) -> tuple[Tensor, Tensor]:
        """Return the differentiated loss, and the figures for the row, in one tensor that a device transfers at once:
        the loss, the accuracy, and the largest absolute output, NaN if an output is NaN. All in fp32, whatever the
        model computed in. `shared`: the batch ends with its share."""
        self.observer.takes(batch)
        weight = self._loss_weight()
        loss, measured = self.subject.compute(self.called, batch[:-1] if shared else batch, self.experiment)
        if weight != 1:
            loss = loss * weight
        if shared:
            loss = loss * batch[-1]
        scaled = self.scaler.scale(loss if divisor == 1 else loss / divisor)
        with torch.no_grad():
            figures = torch.stack([loss] if self._loss_alone else [loss, *measured()])
        self.observer.on_loss(scaled)
        return scaled, figures

    def _loss_weight(self) -> float:
        """Return the factor on the loss of every pass."""
        return self.experiment.loss.weight

    def _climb(self, batches: list[Any], reading: Reading) -> sharpness_aware.Origin:
        """Make the passes that determine the step's loss, and move the weights along their gradient: sharpness-aware
        minimization. A mistake of the loop is in the later passes; only a missing zero_grad is missing here too. Return
        the former weights."""
        knobs = self.experiment
        if not knobs.mistakes.never_zero_grad:
            self._zero_grad()
        shares = self.subject.shares(batches)
        for index, batch in enumerate(batches):
            share = None if shares is None else shares[index]
            reading.on_pass(self._forward_backward(batch, len(batches), share))
        self.observer.call("perturb")
        self.observer.phase("update")
        origin = sharpness_aware.Origin(self.flat, self.model, self.before)
        sharpness_aware.perturb(self.flat, knobs.optimizer.sam_rho)
        if knobs.precision.weights != "fp32":
            weight_format.draw(self._weights, knobs.precision.weights)
        return origin

    def _come_back(self, origin: sharpness_aware.Origin) -> None:
        """Restore the weights from which the update starts."""
        self.observer.call("restore")
        origin.restore()

    def _finish_reduction(self, reading: Reading, scale: float) -> None:
        """Turn the rank's gradient, which carries the loss `scale`, into that of all ranks. A single process has no
        others."""

    def _divide(self, gradients: list[Tensor], count: int) -> None:
        self.observer.call("divide")
        for gradient in gradients:
            gradient.div_(count)

    def _unscale(self, scaling: str) -> None:
        if scaling != "none":
            self.observer.call("unscale")
            self.observer.phase("unscale")
        self.scaler.unscale_(self.optimizer)
        self.observer.phase("update")

    def _clip(self, reading: Reading, *, measured: bool = True) -> None:
        """Clip the gradients if the knobs ask for it."""
        knobs = self.experiment.clipping
        if knobs.kind != "none":
            self.observer.call("clip")
        if knobs.kind in ("none", "per_example"):  # the latter has acted between the passes
            return
        before = self._unclipped_gradients.copy_(self.flat.gradients) if measured else self.flat.gradients
        if reading.clipping[knobs.kind](self.flat, knobs, self.clip_memory) and measured:
            reading.on_clip(before, self.flat.gradients, by_value=knobs.kind == "value")

    @cached_property
    def _unclipped_gradients(self) -> Tensor:
        """Buffer for the gradients before clipping."""
        return self.flat.new()

    def _set_learning_rate(self) -> float:
        share = schedules.factor(self.experiment.schedule, self.taken)
        return optimizers.set_rates(self.optimizer, self.experiment.optimizer, share)

    def _update_scale(self, scaling: str) -> None:
        mistakes = self.experiment.mistakes
        if scaling == "dynamic" and mistakes.never_update_scaler:
            loss_scale.leave(self.scaler, "unscaled" if mistakes.step_without_scaler else "stepped")
            return
        if scaling == "dynamic":
            self.observer.call("update")
        self.scaler.update()

    def _advance_schedule(self) -> None:
        self.observer.call("schedule")
        self.taken += 1

    def _host_looks(self) -> bool:
        """Return whether the host has to read something in the next step. torch's own GradScaler checks at every step
        whether it overflowed."""
        self._settings_in_force()
        asked = self._reads_at_once or self.requests.any or self.passes.watched
        return asked or loss_scale.kind(self.scaler) == "dynamic"

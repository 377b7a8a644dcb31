"""The trainer of one experiment, and its one optimizer step, which reads top to bottom like the maths."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from gradstudio.core import ranks_allowed
from gradstudio.core.experiment import Experiment, Mistakes, Precision, check_passed, find_knob
from gradstudio.core.history import ALIKE, LOOK_EVERY, Activations, Row, Settings
from gradstudio.core.knobs import KnobError, Value
from gradstudio.core.loop_calls import Loop
from gradstudio.engine import chance, devices, environment, memory, runtime
from gradstudio.engine.gauges.reached import Reached
from gradstudio.engine.generators import generator
from gradstudio.engine.own_model import torch_itself
from gradstudio.engine.own_model.subject import OwnModel
from gradstudio.engine.passes.flat import Flat
from gradstudio.engine.passes.forward_backward import Passes
from gradstudio.engine.step import loss_scale, optimizers, schedules, sharpness_aware, testing, weight_format
from gradstudio.engine.step.accumulation import UnclippedSum, kept
from gradstudio.engine.step.checks import DOES_NOT_FIT, NO_CHECKS, NOBODY_JOINS, Checks
from gradstudio.engine.step.gradients import add_noise, centralize
from gradstudio.engine.step.loss_reading import ReadLoss
from gradstudio.engine.step.observer import Observer
from gradstudio.engine.step.reading import Made, ReadAtOnce, Reading, late_reading
from gradstudio.engine.step.testing import OnTestSet
from gradstudio.engine.subject import BuiltIn, Subject


class Trainer:
    """Trains one experiment. Everything that a step changes is in plain attributes: model, optimizer, scaler, task
    (place in the data and its generators), gradient_noise, step (number of the next one), taken (updates that the
    schedule has counted) and passed (batches that were skipped).

    Only one thread at a time may use a trainer; several trainers in one process do not disturb each other. Building one
    raises KnobError where the device is missing or cannot do what is asked for. Without `measured` the CPU reads the
    loss alone."""

    alone = True  # the one process that trains

    def __init__(self, experiment: Experiment, *, measured: bool = True) -> None:
        knobs = experiment
        if self.alone:
            ranks_allowed.check_alone(knobs, "this is not possible")
        self.experiment = experiment  # the values in force
        memory.check_rows(knobs)
        self.device = devices.resolve(knobs.run.device)
        runtime.prepare(knobs.run.deterministic)
        torch_itself.put_back()  # a studio file that was left in mid-step may have changed it
        self.environment = environment.describe(self.device, knobs.run.deterministic)
        with chance.kept("cpu"):
            torch.manual_seed(knobs.run.seed)
            self.subject = _subject(knobs, self.device)
            model = self.subject.build(knobs)
        self.task = self.subject.task
        self.model = model.to(self.device)
        self.called = self.model  # by a pass: the model, or what is around it
        self.layers = self.subject.layers(model)
        self.flat = Flat(self.subject.parameters(model))
        weight_format.draw(self._weights, knobs.precision.weights)
        self.passes = Passes(self.flat, list(model.buffers()), recorded=self.subject.recorded)
        self.check(experiment)
        self._kept = self.subject.kept(self.model, knobs)  # bytes of a micro-batch, where they are many
        self.optimizer = optimizers.build(self.flat, knobs)
        self.updates = optimizers.Updates(self.optimizer)
        self.scaler = loss_scale.build(knobs.precision, self.device)
        self.gradient_noise = generator(knobs.run.seed, "gradient_noise")
        self.step = 0
        self.taken = 0
        self.passed = 0
        self.before = self.flat.new()  # the weights before the last update
        self.moved = False  # whether an update led from there to the weights: not at the start, nor after a rewind
        self.ask_for_nothing()
        self.observer = Observer()
        self._reached: Reached | None = None  # in a step in which somebody looks which parameters are used
        self._at_once: Reading = ReadAtOnce(self.flat) if measured else ReadLoss(self.flat)
        self._late = late_reading(self.flat, self.device)
        self._loss_alone = not measured and self._late is None
        self._known: Experiment | None = None  # the values that the next two were worked out for
        self._settings, self._has_mistakes = settings(experiment), False
        self.forget_changes()

    def check(self, experiment: Experiment) -> None:
        """Raise KnobError where the device cannot train this model with these live values, though each is allowed."""
        self.subject.check(self.model, experiment)

    def ask_for_nothing(self) -> None:
        """Ask for nothing beside the next step: no gradient of its micro-batches joined into one, no mean of their own
        gradients, no sample of the activations, no test set."""
        self.compare_next = self.check_accumulation_next = self.sample_activations_next = self.test_next = False

    def change(self, name: str, value: Value) -> None:
        """Give a live knob a new value, between two steps. Raises KnobError where the knob, the value or the device
        does not allow it."""
        found = find_knob(name)
        if not found.live:
            raise KnobError(f"{name} acts on restart and cannot change while the run goes on")
        wanted = self.experiment.with_value(name, value)
        check_passed(wanted, self.passed)
        spoils = name.startswith("problem.outlier") or name == "problem.nan_every"
        if name == "precision.dtype" or (spoils and not self.subject.judged):
            self.check(wanted)
        if name == "accumulation.steps" and self.device == "cpu":
            memory.check_batches(wanted, self.task.shape)
        before, self.experiment = self.experiment, wanted
        if name.startswith("loss.") or name in ("precision.dtype", "precision.scaling"):
            self.passes.forget()  # every other knob acts outside a pass, or makes it another kind
        if found.section == "optimizer":
            optimizers.change(self.optimizer, self.experiment.optimizer)
        if found.section == "precision":
            self._change_scaler(before.precision)

    def forget_changes(self) -> None:
        """Let the changes of the next step begin from the values that are in force now."""
        self._unchanged = (self.step, self.experiment.precision, self.scaler)

    def _change_scaler(self, before: Precision) -> None:
        """Take the scaler that all changes of this step together lead to. A change that was undone leaves it as it
        was."""
        if self._unchanged[0] != self.step:
            self._unchanged = (self.step, before, self.scaler)
        _, before, scaler = self._unchanged
        self.scaler = loss_scale.change(scaler, before, self.experiment.precision, self.device)

    def steps(self) -> Iterator[Row]:
        """Train without end. Each row is read as soon as its step is made."""
        while True:
            yield from self.advance()
            yield from self.settle()

    def advance(self) -> list[Row]:
        """Make one step, and return the rows that are there by then. On the CPU this is the row of the step. On a
        device whose rows are read later it is that of an earlier step, or none, or all that were not read yet."""
        with self.subject.chance(), self._hear_gradients():
            if self._late is None:
                return self._step(self._at_once)
            if self._host_looks():
                return [*self._late.settle(), *self._step(self._at_once)]
            return self._step(self._late)

    @contextmanager
    def _hear_gradients(self) -> Iterator[None]:
        """Hear which parameters the loss depends on, in the steps after which rules look. That of a recorded pass
        depends on all of them."""
        if self.subject.recorded or self._loss_alone or (self.step + 1) % LOOK_EVERY:
            yield
            return
        with Reached(self.flat.named) as self._reached:
            try:
                yield
            finally:
                self._reached = None

    def settle(self) -> list[Row]:
        """Return the rows of the steps that were made and not read yet, in order. The host waits for the device."""
        return [] if self._late is None else self._late.settle()

    def evaluate(self) -> float | None:
        """Return the share of the test set that is right, None where the data has no test set; NaN where any output is
        not finite, or without a test set any weight."""
        if not self.subject.judged:
            return None if self.weights_are_finite() else math.nan
        return self.test().accuracy

    def test(self) -> OnTestSet:
        """Measure the model on the test set, as it is in evaluation, without a trace in training."""
        self.model.eval()
        try:
            with torch.no_grad():
                return self.subject.test(self.model, self.experiment)
        finally:
            self.model.train()  # also where it does not fit into memory: then training goes on

    @property
    def state(self) -> list[Tensor]:
        """What a step may change in the model beside `flat`: its buffers, and parameters that are not trained."""
        trained = {id(parameter) for parameter in self.flat.parameters}
        others = (parameter for parameter in self.model.parameters() if not parameter.requires_grad)
        return [*self.model.buffers(), *(each.data for each in others if id(each) not in trained)]

    @property
    def test_interval(self) -> int:
        """Steps between two measurements of the test set, with the values in force."""
        knobs = self.experiment
        if not self.subject.judged:
            return LOOK_EVERY
        return testing.interval(self.task.tests, knobs.problem.batch_size * knobs.accumulation.steps)

    def weights_are_finite(self) -> bool:
        """Return whether no weight is NaN or Inf."""
        return bool(torch.isfinite(self.flat.weights).all())

    def pass_over(self, stopped: Callable[[], bool] = lambda: False) -> bool:
        """Draw the batches that are to be skipped before the next step, and let go of each at once. They can take
        hours, so this ends early where it is `stopped`. Return whether all are passed over. It is done just before the
        step, so that a change that is undone before leaves no trace."""
        while self.passed < self.experiment.problem.skip_batches:
            if stopped():
                return False
            self.task.next_batch(self.model, self.experiment.accumulation.steps)
            self.passed += 1
        return True

    def next_batches(self) -> list[Any]:
        """Draw the micro-batches of the next step, behind those that are to be skipped."""
        self.pass_over()
        problem = self.experiment.problem
        batches = self.task.next_batches(self.model, self.experiment.accumulation.steps)
        number = self.step + self.passed  # the number of the batch in the data, so that it can be skipped
        if problem.outlier_every > 0 and number > 0 and number % problem.outlier_every == 0:
            batches = [self.task.outlier(batch, problem.outlier_scale) for batch in batches]
        if problem.nan_every > 0 and number > 0 and number % problem.nan_every == 0:
            return self._with_nan(batches)
        return batches

    def _with_nan(self, batches: list[Any]) -> list[Any]:
        return [self.task.with_nan(batch) for batch in batches]

    # ---- the step: batches, passes, gradient, update, row; each mistake is an `if` at its place in the loop

    def _step(self, reading: Reading) -> list[Row]:
        """Make one optimizer step, and return the rows that are due."""
        reading.begin()
        self.observer.calls.clear()
        knobs, batches = self.experiment, self.next_batches()
        checks = self._checks(batches)
        origin = self._climb(batches, reading) if knobs.optimizer.sam_rho > 0 else None
        if checks is not NO_CHECKS:
            with self.subject.no_chance():
                self._measure_gradients(batches, checks)
            self.ask_for_nothing()

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
        unused = None if self._reached is None else self._reached.unused()
        return reading.rows(Made(number, lr, scale, loop, self._settings_in_force(), checks, judged, unused))

    def _make_passes(self, batches: list[Any], reading: Reading, *, counted: bool) -> UnclippedSum | None:
        """Add up the gradients of all micro-batches, times the loss scale. Return their true sum where each of them
        was clipped. `counted`: the losses are those of the step."""
        mistakes, flat = self.experiment.mistakes, self.flat
        divisor = 1 if mistakes.unscaled_accumulation or mistakes.divide_each_micro_batch else len(batches)
        shares = None if mistakes.normalize_each_micro_batch else self.subject.shares(batches)
        unclipped = UnclippedSum(flat) if mistakes.clip_each_micro_batch else None
        if not mistakes.never_zero_grad:
            self._zero_grad()
        if mistakes.clip_before_backward:
            self._clip(reading, measured=False)
        for index, batch in enumerate(batches[: kept(len(batches))] if mistakes.drop_last_micro_batches else batches):
            if mistakes.zero_grad_each_micro_batch:
                self._zero_grad()
            if mistakes.scheduler_each_micro_batch and index > 0:
                self._advance_schedule()
            if unclipped:
                unclipped.set_aside()
            figures = self._forward_backward(batch, divisor, None if shares is None else shares[index])
            if counted:
                reading.passed(figures)
            if unclipped:
                unclipped.put_back()
            if mistakes.divide_each_micro_batch and len(batches) > 1:
                self._divide([flat.gradients, *([unclipped.sum] if unclipped else [])], len(batches))
            if unclipped:
                self._clip(reading, measured=False)
        return unclipped

    def _finish_gradient(
        self, reading: Reading, checks: Checks, scaling: str, scale: float, unclipped: UnclippedSum | None
    ) -> None:
        """Make of the sum, which carries the loss `scale`, the gradient that the optimizer gets."""
        knobs, mistakes, flat = self.experiment, self.experiment.mistakes, self.flat
        if unclipped:  # the true gradient is the sum of micro-batches that nobody clipped
            reading.gradient(unclipped.sum, scale)
            if knobs.clipping.kind != "none":
                reading.clipped(unclipped.sum, flat.gradients)
        if mistakes.clip_before_unscale:
            reading.gradient(flat.gradients, scale)
            self._clip(reading)
        self._unscale(scaling)
        reading.gradient(flat.gradients)  # the true one, unless a mistake clips before this
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
        """Let the optimizer, the loss scale and the schedule make their step. Return the learning rate, and whether
        the scaler skipped the update at an overflow."""
        precision, mistakes, flat = self.experiment.precision, self.experiment.mistakes, self.flat
        lr = self._set_learning_rate()
        self.before.copy_(flat.weights)
        self.moved, made = True, self.updates.made
        if mistakes.step_without_scaler and scaling == "dynamic":
            self.observer.call("step_without_scaler")
            self.optimizer.step()
        else:
            self.observer.call("step")
            self.scaler.step(self.optimizer)
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
        and its largest absolute output, (3,), or its loss alone, (1,), on the device and valid until the next pass."""
        self.observer.call("forward")
        self.observer.call("backward")
        compute = partial(self._compute, divisor=divisor, shared=share is not None)
        return self.passes.make(divisor, compute, batch if share is None else (*batch, share))[1]

    def _compute(self, *batch: Any, divisor: int, shared: bool = False) -> tuple[Tensor, Tensor]:
        """Return what is differentiated, and for the row, in one tensor that a device hands over at once: the loss, the
        accuracy, and the largest absolute output, NaN where an output is NaN. All in fp32, whatever the model computed
        in. `shared`: the batch ends with its share."""
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
        self.observer.computed(scaled)
        return scaled, figures

    def _loss_weight(self) -> float:
        """Return the factor on the loss of every pass."""
        return self.experiment.loss.weight

    def _climb(self, batches: list[Any], reading: Reading) -> sharpness_aware.Origin:
        """Make the passes whose losses the step has, and move the weights along their gradient: sharpness-aware
        minimization. A mistake of the loop is in the passes that come after; only a missing zero_grad is missing here
        too. Return where the weights were."""
        knobs = self.experiment
        if not knobs.mistakes.never_zero_grad:
            self._zero_grad()
        shares = self.subject.shares(batches)
        for index, batch in enumerate(batches):
            share = None if shares is None else shares[index]
            reading.passed(self._forward_backward(batch, len(batches), share))
        self.observer.call("perturb")
        self.observer.phase("update")
        origin = sharpness_aware.Origin(self.flat, self.model, self.before)
        sharpness_aware.perturb(self.flat, knobs.optimizer.sam_rho)
        if knobs.precision.weights != "fp32":
            weight_format.draw(self._weights, knobs.precision.weights)
        return origin

    def _come_back(self, origin: sharpness_aware.Origin) -> None:
        """Bring the weights back to where the update begins."""
        self.observer.call("restore")
        origin.restore()

    def _finish_reduction(self, reading: Reading, scale: float) -> None:
        """Make of the rank's gradient, which carries the loss `scale`, that of all ranks. One process has no others."""

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
        """Clip the gradients where the knobs ask for it."""
        knobs = self.experiment.clipping
        if knobs.kind == "none":
            return
        self.observer.call("clip")
        before = self._unclipped.copy_(self.flat.gradients) if measured else self.flat.gradients
        if reading.clipping[knobs.kind](self.flat, knobs) and measured:
            reading.clipped(before, self.flat.gradients)

    @cached_property
    def _weights(self) -> list[Tensor]:
        """The weights of each parameter, as views of the flat ones."""
        return self.flat.layout.views(self.flat.weights.data, self.flat.parameters)

    @cached_property
    def _unclipped(self) -> Tensor:
        """Room for the gradients as they are before clipping."""
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

    # ---- what is known and asked beside it

    def _checks_asked(self) -> bool:
        return self.compare_next or self.check_accumulation_next or self.sample_activations_next or self.test_next

    def _checks(self, batches: list[Any]) -> Checks:
        """Measure what was asked for beside this step."""
        if not self._checks_asked():
            return NO_CHECKS
        checks = Checks(self.step, ALIKE[self.experiment.precision.dtype])
        with self.subject.no_chance():
            if self.sample_activations_next:
                sampled = self.subject.activations(self.model, batches[0], self.experiment)
                checks.activations = Activations(self.step, sampled)
            if self.test_next:
                checks.measure_test_set(self.test)
        return checks

    def _measure_gradients(self, batches: list[Any], checks: Checks) -> None:
        """Measure the gradients that were asked for, where that of the step is taken."""
        parameters = self.flat.parameters
        if self.compare_next and not memory.fits(self._kept * len(batches)):
            checks.joined_problem = DOES_NOT_FIT
        elif self.compare_next and not self.subject.judged:
            checks.joined_problem = NOBODY_JOINS
        elif self.compare_next:
            loss = self._loss_of_batch(1)
            checks.measure_joined(self.model, parameters, batches, loss, self.scaler.get_scale)
        if self.check_accumulation_next:
            shares = self.subject.shares(batches)
            loss = self._loss_of_batch(len(batches), shared=shares is not None)
            if shares is not None:
                batches = [(*batch, share) for batch, share in zip(batches, shares, strict=True)]
            checks.measure_summed(self.model, parameters, batches, loss, self.subject.gradients)

    def _loss_of_batch(self, divisor: int, *, shared: bool = False) -> Callable[[Any], Tensor]:
        return lambda batch: self._compute(*batch, divisor=divisor, shared=shared)[0]

    def _host_looks(self) -> bool:
        """Return whether something in the next step is for the host to see. torch's own GradScaler looks at every step
        whether it overflowed."""
        self._settings_in_force()
        return (
            self._has_mistakes
            or self._checks_asked()
            or self.passes.watched
            or loss_scale.kind(self.scaler) == "dynamic"
        )

    def _settings_in_force(self) -> Settings:
        """Return what the values in force tell a step to do to its gradient; worked out once for each experiment."""
        if self._known is not self.experiment:
            self._known = self.experiment
            self._settings = settings(self.experiment)
            self._has_mistakes = self.experiment.mistakes != Mistakes()
        return self._settings


def _subject(knobs: Experiment, device: str) -> Subject:
    """Return what the knobs ask to be trained."""
    if knobs.studio_file is None:
        return BuiltIn(knobs, device)
    return OwnModel(knobs.studio_file, knobs, device)


def settings(knobs: Experiment) -> Settings:
    """Return what a step under these values is told to do to its gradient."""
    limits = ("clipping.max_norm", "clipping.clip_value", "clipping.agc_factor")
    limit = next((float(knobs[name]) for name in limits if knobs.applies(name)), 0.0)
    momentum, beta1, beta2 = (
        float(knobs[name]) if knobs.applies(name) else 0.0
        for name in ("optimizer.momentum", "optimizer.beta1", "optimizer.beta2")
    )
    kind, decay = knobs.optimizer.kind, float(knobs.optimizer.weight_decay)
    beta2 = optimizers.ALPHA if kind == "rmsprop" else beta2
    rho = knobs.optimizer.sam_rho
    return Settings(knobs.clipping.kind, limit, knobs.precision.dtype, kind, momentum, beta1, beta2, decay, rho)

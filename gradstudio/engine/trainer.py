"""One optimizer step, reading top to bottom like the maths."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from gradstudio.core.experiment import Experiment, Precision, check_passed, find_knob
from gradstudio.core.history import ALIKE, Accumulated, Activation, Activations, Row, Settings
from gradstudio.core.knobs import KnobError, Value
from gradstudio.core.loop_order import Call, Loop
from gradstudio.engine import (
    accumulation,
    activations,
    devices,
    environment,
    gauges,
    gradients,
    losses,
    models,
    optimizers,
    precision,
    runtime,
    schedules,
)
from gradstudio.engine.clipping import CLIPPING
from gradstudio.engine.deferred import Deferred
from gradstudio.engine.flat import Flat
from gradstudio.engine.generators import generator
from gradstudio.engine.initialization import initialize
from gradstudio.engine.passes import Passes
from gradstudio.engine.runtime import out_of_memory
from gradstudio.engine.tasks import TASKS
from gradstudio.engine.tasks.task import Batch

_WEIGHTS_ARE_DRAWN = threading.Lock()  # from torch's one global generator, which the threads of a process share


class Trainer:
    """Trains one experiment. Everything that a step changes is in plain attributes: model, optimizer, scaler, task (place in
    the data and its generators), gradient_noise, step (the next one's number), taken (how far the schedule is) and passed (batches
    that were passed over).

    One thread at a time may use a trainer; several trainers in one process do not disturb each other.
    Building one raises KnobError where the device is not there, or cannot do what is asked for.
    """

    def __init__(self, experiment: Experiment) -> None:
        knobs = experiment
        self.experiment = experiment  # the values in force
        self.device = devices.resolve(knobs.run.device)
        runtime.prepare(knobs.run.deterministic)
        self.environment = environment.describe(self.device, knobs.run.deterministic)
        self.task = TASKS[knobs.problem.task](knobs.problem, knobs.run.seed, self.device)
        self.loss = losses.choose(knobs.loss.kind, self.task.goal)
        shape = self.task.shape._replace(outputs=self.task.shape.outputs * self.loss.outputs)
        with _WEIGHTS_ARE_DRAWN, torch.random.fork_rng(devices=[]):
            torch.manual_seed(knobs.run.seed)
            model = models.MODELS[knobs.model.kind](knobs.model, shape)
            initialize(model, knobs.model, self.task.sample())
        self.model = model.to(self.device)
        self.layers = models.layers(model)
        self.flat = Flat(models.named_parameters(model))
        self.gauges = gauges.Gauges(self.flat.layout)
        self.passes = Passes(self.flat, list(model.buffers()))
        self.check(experiment)
        self.optimizer = optimizers.build(self.flat.weights, knobs.optimizer)
        self.updates = optimizers.Updates(self.optimizer)
        self.scaler = precision.build_scaler(knobs.precision, self.device)
        self.gradient_noise = generator(knobs.run.seed, "gradient_noise")
        self.step = 0
        self.taken = 0
        self.passed = 0
        self._deferred = Deferred.of(self.flat, self.device)
        self.forget_changes()
        self.compare_next = False  # whether the next step also computes the gradient of its micro-batches joined into one
        self.check_accumulation_next = False  # or the mean of their own
        self.sample_activations_next = False
        self._settings = (experiment, settings(experiment))
        self._calls: list[Call] = []  # of this step
        self.before, self.moved = self.flat.new(), False  # the weights before the last update, and whether there was one

    def check(self, experiment: Experiment) -> None:
        """KnobError where the device cannot train this model with these live values, though each is allowed."""
        precision.check(self.model, self.task.sample(2), experiment.precision, self.device, experiment.model.kind)

    def change(self, name: str, value: Value) -> None:
        """Give a live knob a new value, between two steps; KnobError where the knob, the value or the device does not allow it."""
        found = find_knob(name)
        if not found.live:
            raise KnobError(f"{name} acts on restart and cannot change while the run goes on")
        wanted = self.experiment.with_value(name, value)
        check_passed(wanted, self.passed)
        if name == "precision.dtype":
            self.check(wanted)
        before, self.experiment = self.experiment, wanted
        if name.startswith("loss.") or name in ("precision.dtype", "precision.scaling"):
            self.passes.forget()  # every other knob acts outside a pass, or makes it another kind
        if found.section == "optimizer":
            optimizers.change(self.optimizer, self.experiment.optimizer)
        if found.section == "precision":
            self._change_scaler(before.precision)

    def forget_changes(self) -> None:
        """The values in force are those that the next step's changes begin from."""
        self._unchanged = (self.step, self.experiment.precision, self.scaler)

    def _change_scaler(self, before: Precision) -> None:
        """The scaler that all of this step's changes leave together: one that was made and taken back leaves it as it was."""
        if self._unchanged[0] != self.step:
            self._unchanged = (self.step, before, self.scaler)
        _, before, scaler = self._unchanged
        self.scaler = precision.change_scaler(scaler, before, self.experiment.precision, self.device)

    def steps(self) -> Iterator[Row]:
        """Train without end, a row an optimizer step, read as soon as the step is made."""
        while True:
            yield from self.advance()
            yield from self.settle()

    def advance(self) -> list[Row]:
        """Make one step. Gives the rows that are there by then: on the CPU its own; of a device whose rows are read later (deferred.py), that
        of some steps before, or none, or all that were still to be read."""
        return [self._step()] if self._deferred is None else self._deferred.advance(self)

    def settle(self) -> list[Row]:
        """The rows of the steps that were made and not read yet, in order. The host waits for the device."""
        return [] if self._deferred is None else self._deferred.settle()

    def evaluate(self) -> float:
        """Share of the test set that is right; NaN where any output is not finite."""
        self.model.eval()
        with torch.no_grad(), precision.autocast(self.experiment.precision, self.device):
            inputs, targets = self.task.test_batch(self.model)
            outputs = self.model(inputs).float()
        self.model.train()
        return losses.accuracy(self.loss, outputs, targets)

    def weights_are_finite(self) -> bool:
        return bool(torch.isfinite(self.flat.weights).all())

    def _step(self) -> Row:
        started = time.perf_counter()
        self._calls = []
        batches = self._batches()
        joined, joined_problem = self._joined_gradient(batches) if self.compare_next else (None, "")
        sampled = Activations(self.step, self._sample(batches[0])) if self.sample_activations_next else None
        mean = self._mean_gradient(batches) if self.check_accumulation_next else None
        loss, right, unclipped = self._accumulate(batches)
        accumulated = None if mean is None else Accumulated(self.step, accumulation.difference(self.flat.grads, mean), self._rounding)
        scale, scaling = self.scaler.get_scale(), precision.scales(self.scaler)
        gradient, clip_coef, clipped_norm, difference = self._finish_gradient(unclipped, scale, joined)
        lr, skipped, change = self._update()
        row = Row(
            step=self.step, loss=loss, grad_norm=gradient.norm, clipped_norm=clipped_norm, clip_coef=clip_coef, lr=lr, scale=scale,
            skipped=skipped, nonfinite=gradient.nonfinite, update_ratio=change.update_ratio, weight_norm=change.weight_norm,
            accuracy=right, step_seconds=time.perf_counter() - started, layers=gauges.by_layer(gradient, change),
            loop=Loop(tuple(self._calls), len(batches), self.experiment.clipping.kind != "none", scaling, skipped),
            joined_difference=difference, joined_problem=joined_problem,
            settings=self._settings_now(), accumulated=accumulated, activations=sampled,
        )  # fmt: skip
        self.step += 1
        self.compare_next = self.check_accumulation_next = self.sample_activations_next = False
        return row

    def _settings_now(self) -> Settings:
        if self._settings[0] is not self.experiment:
            self._settings = (self.experiment, settings(self.experiment))
        return self._settings[1]

    def _batches(self) -> list[Batch]:
        """The step's micro-batches. What is to be passed over goes first: only now, so that a change taken back before leaves no trace."""
        problem = self.experiment.problem
        while self.passed < problem.skip_batches:
            self._draw()
            self.passed += 1
        batches, number = self._draw(), self.step + self.passed
        if problem.outlier_every > 0 and number > 0 and number % problem.outlier_every == 0:  # by its number in the data: so it can be avoided
            batches = [Batch(self.task.outliers(batch.inputs, problem.outlier_scale), batch.targets) for batch in batches]
        return batches

    def _draw(self) -> list[Batch]:
        """The next micro-batches of the data, as many as a step has."""
        return [self.task.next_batch(self.model) for _ in range(self.experiment.accumulation.steps)]

    def _accumulate(self, batches: list[Batch]) -> tuple[float, float, Tensor | None]:
        """Forward and backward for every micro-batch. Afterwards .grad holds the step's gradient, times the loss scale.
        Gives the loss, the accuracy and, where micro-batches are clipped one by one, the sum as it would be without."""
        mistakes = self.experiment.mistakes
        passes = []
        if not mistakes.never_zero_grad:
            self._zero_grad()
        unclipped = accumulation.UnclippedSum(self.flat.gradients) if mistakes.clip_each_micro_batch else None
        for index, batch in enumerate(batches[: accumulation.kept(len(batches))] if mistakes.drop_last_micro_batches else batches):
            if mistakes.zero_grad_each_micro_batch:
                self._zero_grad()
                unclipped = unclipped and accumulation.UnclippedSum(self.flat.gradients)
            if mistakes.scheduler_each_micro_batch and index > 0:
                self._advance_schedule()
            if unclipped is not None:
                unclipped.set_aside()
            passes.append(self._pass(batch, 1 if mistakes.unscaled_accumulation else len(batches)).tolist())
            if unclipped is not None:
                unclipped.put_back()
                self._clip()
        return *accumulation.means(passes), unclipped and unclipped.sum

    def _finish_gradient(
        self, unclipped: Tensor | None, scale: float, joined: list[Tensor] | None
    ) -> tuple[gauges.Gradient, float, float, float | None]:
        """From what accumulated to what the optimizer gets: unscale, measure, centralize, add noise, clip. Gives the true gradient's
        measures, norm after clipping / norm before, the norm that the optimizer gets, and the difference to the `joined` gradient."""
        knobs, mistakes, measure, flat = self.experiment.gradients, self.experiment.mistakes, self.gauges, self.flat
        gradient, clip_coef = None, 1.0
        if unclipped is not None:
            gradient = measure.measure_gradient(unclipped, scale)
            clip_coef = 1.0 if self.experiment.clipping.kind == "none" else gauges.coefficient(measure.norm(unclipped), measure.norm(flat.gradients))
        if mistakes.clip_before_unscale:
            gradient = gradient or measure.measure_gradient(flat.gradients, scale)
            clip_coef *= self._clip(measure.norm(flat.gradients))[0]
        self._unscale()
        touched = gradient is not None or mistakes.unscale_twice or knobs.centralize or knobs.noise_std > 0
        gradient = gradient or measure.measure_gradient(flat.gradients)
        if mistakes.unscale_twice:
            self._unscale()
        difference = None if joined is None else accumulation.difference(flat.grads, joined)
        if knobs.centralize:
            gradients.centralize(flat.grads)
        if knobs.noise_std > 0:
            gradients.add_noise(flat.grads, knobs.noise_std, self.gradient_noise)
        norm = measure.norm(flat.gradients) if touched else gradient.norm
        if not (mistakes.clip_each_micro_batch or mistakes.clip_before_unscale or mistakes.clip_after_step):
            clip_coef, norm = self._clip(norm)
        return gradient, clip_coef, norm, difference

    def _update(self) -> tuple[float, bool, gauges.Change]:
        """Gives the learning rate, whether the update was skipped, and the change's measures."""
        lr, skipped = self._move()
        return lr, skipped, self.gauges.measure_change(self.before, self.flat.weights)

    def _move(self) -> tuple[float, bool]:
        """Let the optimizer change the weights, unless the scaler skips. Gives the learning rate, and whether the update was skipped."""
        knobs, mistakes, made = self.experiment, self.experiment.mistakes, self.updates.made
        lr = knobs.optimizer.lr * schedules.factor(knobs.schedule, self.taken)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.before.copy_(self.flat.weights)
        self.moved = True
        self._take_step(around_scaler=mistakes.step_without_scaler)
        if mistakes.clip_after_step:
            self._clip()
        self._update_scale()
        skipped = self.updates.made == made
        if not skipped:
            self._advance_schedule()
        return lr, skipped

    # ---- the calls of a training loop, each noted as it is made

    def _zero_grad(self) -> None:
        self._calls.append("zero_grad")
        self.flat.clear()

    def _pass(self, batch: Batch, divisor: int) -> Tensor:
        """Forward and backward. Gives the loss, the accuracy and the largest absolute output, (3,), on the device and until the next pass."""
        self._calls += ["forward", "backward"]
        return self.passes.make(divisor, partial(self._compute, divisor=divisor), batch)[1]

    def _unscale(self) -> None:
        if precision.scales(self.scaler) != "none":
            self._calls.append("unscale")
        self.scaler.unscale_(self.optimizer)

    def _clip(self, before: float = math.nan) -> tuple[float, float]:
        """Clip .grad, whose norm is `before`. Gives norm after / norm before, exactly 1 where nothing was clipped, and the norm after."""
        knobs = self.experiment.clipping
        if knobs.kind == "none":
            return 1.0, before
        self._calls.append("clip")
        if not CLIPPING[knobs.kind](self.flat, knobs):
            return 1.0, before
        after = self.gauges.norm(self.flat.gradients)
        return gauges.coefficient(before, after), after

    def _take_step(self, *, around_scaler: bool) -> None:
        if around_scaler and precision.scales(self.scaler) == "dynamic":
            self._calls.append("step_without_scaler")
            self.optimizer.step()
        else:
            self._calls.append("step")
            self.scaler.step(self.optimizer)

    def _update_scale(self) -> None:
        if precision.scales(self.scaler) == "dynamic":
            self._calls.append("update")
        self.scaler.update()

    def _advance_schedule(self) -> None:
        self._calls.append("schedule")
        self.taken += 1

    # ---- what the calls need

    def _compute(self, inputs: Tensor, targets: Tensor, divisor: int) -> tuple[Tensor, Tensor]:
        """What is to be differentiated; and, for a device to hand over at once, the loss, the accuracy, and the largest absolute output,
        NaN where there is one. All in fp32, whatever the model computed in."""
        knobs = self.experiment.loss
        with precision.autocast(self.experiment.precision, self.device):
            outputs = self.model(inputs)
        outputs = outputs.float()
        loss = self.loss.value(outputs, targets, knobs.eps)
        if knobs.weight != 1:
            loss = loss * knobs.weight
        scaled = self.scaler.scale(loss if divisor == 1 else loss / divisor)
        with torch.no_grad():
            return scaled, torch.stack([loss, self.loss.accuracy(outputs, targets), torch.linalg.vector_norm(outputs, math.inf)])

    def _joined_gradient(self, batches: list[Batch]) -> tuple[list[Tensor] | None, str]:
        """The gradient of the micro-batches as one batch: what their accumulated gradient ought to be. A batch too large for memory,
        which is what micro-batches are for, gives none, and says so."""
        try:
            joined = accumulation.joined(batches)
            grads = accumulation.joined_gradient(self.model, self.flat.parameters, joined, lambda batch: self._compute(*batch, divisor=1)[0])
        except (RuntimeError, MemoryError) as fault:
            if not out_of_memory(fault):
                raise
            return None, "not compared: the joined batch does not fit into memory"
        return [grad / self.scaler.get_scale() for grad in grads], ""

    @property
    def _rounding(self) -> float:
        return ALIKE[self.experiment.precision.dtype]

    def _mean_gradient(self, batches: list[Batch]) -> list[Tensor] | None:
        """The mean of the micro-batches' own gradients, times the loss scale: what they ought to add up to. None where it does not fit
        into memory."""
        compute = partial(self._compute, divisor=len(batches))
        try:
            return accumulation.summed_gradient(self.model, self.flat.parameters, batches, lambda batch: compute(*batch)[0])
        except (RuntimeError, MemoryError) as fault:
            if not out_of_memory(fault):
                raise
            return None

    def _sample(self, batch: Batch) -> tuple[Activation, ...]:
        """What comes out of every activation on a micro-batch, without a trace."""
        with precision.autocast(self.experiment.precision, self.device):
            return activations.sample(self.model, self.experiment.model.activation, batch.inputs)


def settings(knobs: Experiment) -> Settings:
    """What a step under these values is told to do to its gradient."""
    clipping = knobs.clipping
    limits = {"none": 0.0, "value": clipping.clip_value, "agc": clipping.agc_factor}
    return Settings(clipping.kind, limits.get(clipping.kind, clipping.max_norm), knobs.precision.dtype)

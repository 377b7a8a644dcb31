"""One optimizer step, reading top to bottom like the maths."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator

import torch
from torch import Tensor

from gradstudio.core.experiment import Experiment, find_knob
from gradstudio.core.history import Row
from gradstudio.core.knobs import KnobError, Value
from gradstudio.engine import accumulation, devices, environment, foreach, gauges, gradients, models, optimizers, precision, runtime, schedules
from gradstudio.engine.clipping import CLIPPING
from gradstudio.engine.generators import generator
from gradstudio.engine.initialization import initialize
from gradstudio.engine.losses import LOSSES
from gradstudio.engine.tasks import TASKS

_WEIGHTS_ARE_DRAWN = threading.Lock()  # from torch's one global generator, which the threads of a process share


class Trainer:
    """Trains one experiment. Everything that a step changes is in plain attributes: model, optimizer, scaler, task (place in
    the data and its generators), gradient_noise, step (the next one's number) and taken (how far the schedule is).

    One thread at a time may use a trainer; several trainers in one process do not disturb each other.
    Building one raises KnobError where the device is not there or values do not go together.
    """

    def __init__(self, experiment: Experiment) -> None:
        knobs = experiment
        self.experiment = experiment  # the values in force
        self.device = devices.resolve(knobs.run.device)
        _check(knobs)
        runtime.prepare(knobs.run.deterministic)
        self.environment = environment.describe(self.device, knobs.run.deterministic)
        self.task = TASKS[knobs.problem.task](knobs.problem, knobs.run.seed, self.device)
        with _WEIGHTS_ARE_DRAWN, torch.random.fork_rng(devices=[]):
            torch.manual_seed(knobs.run.seed)
            model = models.MODELS[knobs.model.kind](knobs.model, self.task.time_steps, self.task.features, self.task.classes)
            initialize(model, knobs.model, self.task.sample())
        self.model = model.to(self.device)
        self.layers = models.layers(model)
        self.named_parameters = models.named_parameters(model)
        self.parameters = [parameter for _, parameter in self.named_parameters]
        self.optimizer = optimizers.build(self.parameters, knobs.optimizer)
        self.updates = optimizers.Updates(self.optimizer)
        self.scaler = precision.build_scaler(knobs.precision, self.device)
        self.gradient_noise = generator(knobs.run.seed, "gradient_noise")
        self.step = 0
        self.taken = 0
        self._before = [torch.empty_like(parameter) for parameter in self.parameters]

    def change(self, name: str, value: Value) -> None:
        """Give a live knob a new value, between two steps; KnobError where the knob or the value does not allow it."""
        found = find_knob(name)
        if not found.live:
            raise KnobError(f"{name} acts on restart and cannot change while the run goes on")
        self.experiment = self.experiment.with_value(name, value)
        if found.section == "optimizer":
            optimizers.change(self.optimizer, self.experiment.optimizer)
        if found.section == "precision":
            self.scaler = precision.change_scaler(self.scaler, name, self.experiment.precision, self.device)

    def steps(self) -> Iterator[Row]:
        """Train without end, a row an optimizer step."""
        while True:
            yield self._step()

    def evaluate(self) -> float:
        """Share of the test set that is right; NaN where any logit is not finite."""
        self.model.eval()
        with torch.no_grad(), precision.autocast(self.experiment.precision, self.device):
            logits = self.model(self.task.test_inputs)
        self.model.train()
        return accuracy(logits, self.task.test_labels)

    def _step(self) -> Row:
        started = time.perf_counter()
        loss, right, unclipped = self._accumulate()
        scale = self.scaler.get_scale()
        gradient, clip_coef, clipped_norm = self._finish_gradient(unclipped, scale)
        lr, skipped, change = self._update()
        row = Row(
            step=self.step, loss=loss, grad_norm=gradient.norm, clipped_norm=clipped_norm, clip_coef=clip_coef, lr=lr, scale=scale,
            skipped=skipped, nonfinite=gradient.nonfinite, update_ratio=change.update_ratio, weight_norm=change.weight_norm,
            accuracy=right, step_seconds=time.perf_counter() - started, layers=gauges.by_layer(gradient, change),
        )  # fmt: skip
        self.step += 1
        return row

    def _accumulate(self) -> tuple[float, float, list[Tensor] | None]:
        """Forward and backward for every micro-batch. Afterwards .grad holds the step's gradient, times the loss scale.
        Gives the loss, the accuracy and, where micro-batches are clipped one by one, the sum as it would be without."""
        knobs, mistakes, micro_batches = self.experiment, self.experiment.mistakes, self.experiment.accumulation.steps
        losses, right = [], []
        if not mistakes.never_zero_grad:
            self.optimizer.zero_grad()
        unclipped = accumulation.UnclippedSum(self.parameters) if mistakes.clip_each_micro_batch else None
        for index, (inputs, labels) in enumerate(self._batches(micro_batches)):
            if mistakes.zero_grad_each_micro_batch:
                self.optimizer.zero_grad()
                unclipped = unclipped and accumulation.UnclippedSum(self.parameters)
            if mistakes.scheduler_each_micro_batch and index > 0:
                self.taken += 1
            with precision.autocast(knobs.precision, self.device):
                logits = self.model(inputs)
            loss = LOSSES["auto"](logits, labels) * knobs.loss.weight
            share = loss if mistakes.unscaled_accumulation else loss / micro_batches
            if unclipped is None:
                self.scaler.scale(share).backward()
            else:
                unclipped.set_aside()
                self.scaler.scale(share).backward()
                unclipped.put_back()
                self._clip()
            losses.append(loss.detach())
            right.append(accuracy(logits.detach(), labels))
        return torch.stack(losses).cpu().double().mean().item(), sum(right) / len(right), unclipped and unclipped.sum

    def _finish_gradient(self, unclipped: list[Tensor] | None, scale: float) -> tuple[gauges.Gradient, float, float]:
        """From what accumulated to what the optimizer gets: unscale, measure, centralize, add noise, clip.
        Gives the true gradient's measures, norm after clipping / norm before, and the norm that the optimizer gets."""
        knobs, mistakes, grads = self.experiment.gradients, self.experiment.mistakes, self._grads()
        gradient, clip_coef = None, 1.0
        if unclipped is not None:
            gradient = gauges.measure_gradient(unclipped, scale)
            clip_coef = 1.0 if self.experiment.clipping.kind == "none" else _coefficient(gauges.norm(unclipped), gauges.norm(grads))
        if mistakes.clip_before_unscale:
            gradient = gradient or gauges.measure_gradient(grads, scale)
            clip_coef *= self._clip(gauges.norm(grads))[0]
        self.scaler.unscale_(self.optimizer)
        touched = gradient is not None or mistakes.unscale_twice or knobs.centralize or knobs.noise_std > 0
        gradient = gradient or gauges.measure_gradient(grads)
        if mistakes.unscale_twice:
            self.scaler.unscale_(self.optimizer)
        if knobs.centralize:
            gradients.centralize(grads)
        if knobs.noise_std > 0:
            gradients.add_noise(grads, knobs.noise_std, self.gradient_noise)
        norm = gauges.norm(grads) if touched else gradient.norm
        if not (mistakes.clip_each_micro_batch or mistakes.clip_before_unscale or mistakes.clip_after_step):
            clip_coef, norm = self._clip(norm)
        return gradient, clip_coef, norm

    def _update(self) -> tuple[float, bool, gauges.Change]:
        """Let the optimizer change the weights, unless the scaler skips. Gives the learning rate, whether the update was
        skipped, and the change's measures."""
        knobs, mistakes, made = self.experiment, self.experiment.mistakes, self.updates.made
        lr = knobs.optimizer.lr * schedules.factor(knobs.schedule, self.taken)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        with torch.no_grad():
            foreach.copy_(self._before, self.parameters)
        if mistakes.step_without_scaler:
            self.optimizer.step()
        else:
            self.scaler.step(self.optimizer)
        if mistakes.clip_after_step:
            self._clip()
        self.scaler.update()
        skipped = self.updates.made == made
        self.taken += not skipped
        return lr, skipped, gauges.measure_change(self._before, self.parameters)

    def _batches(self, micro_batches: int) -> list[tuple[Tensor, Tensor]]:
        """The step's micro-batches. What a mistake leaves out is drawn all the same, so that the others stay the same."""
        problem = self.experiment.problem
        batches = [self.task.next_batch() for _ in range(micro_batches)]
        if problem.outlier_every > 0 and self.step > 0 and self.step % problem.outlier_every == 0:
            batches = [(self.task.outliers(inputs, problem.outlier_scale), labels) for inputs, labels in batches]
        if self.experiment.mistakes.drop_last_micro_batches:
            batches = batches[: accumulation.kept(micro_batches)]
        return batches

    def _clip(self, before: float = math.nan) -> tuple[float, float]:
        """Clip .grad, whose norm is `before`. Gives norm after / norm before, exactly 1 where nothing was clipped, and the norm after."""
        knobs = self.experiment.clipping
        if knobs.kind == "none":
            return 1.0, before
        CLIPPING[knobs.kind](self.named_parameters, knobs)
        after = gauges.norm(self._grads())
        return _coefficient(before, after), after

    def _grads(self) -> list[Tensor]:
        return gradients.of(self.parameters)


def accuracy(logits: Tensor, labels: Tensor) -> float:
    """Share of (batch, classes) whose largest logit is the label's; NaN where any logit is not finite."""
    if not torch.isfinite(logits).all():
        return math.nan
    return (logits.argmax(1) == labels).float().mean().item()


def _coefficient(before: float, after: float) -> float:
    """Norm after clipping / norm before; 1 where it did nothing."""
    return 1.0 if before == after else after / before


def _check(knobs: Experiment) -> None:
    """KnobError where values that are allowed by themselves cannot train together."""
    if knobs.model.norm == "batch" and knobs.problem.batch_size == 1:
        raise KnobError("problem.batch_size = 1 is not allowed with model.norm = batch; allowed: at least 2, or model.norm = layer")

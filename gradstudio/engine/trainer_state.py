"""The subject of training and everything that a step changes: the model, its data, its optimizer and the values in
force."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from gradstudio.core import ranks_allowed
from gradstudio.core.experiment import Experiment, check_passed, find_knob
from gradstudio.core.history import LOOK_EVERY
from gradstudio.core.knobs import KnobError, Value
from gradstudio.core.row import Settings
from gradstudio.core.sections.loop_knobs import Mistakes, Precision
from gradstudio.engine import devices, environment, memory, random_state, runtime
from gradstudio.engine.generators import generator
from gradstudio.engine.own_model import torch_itself
from gradstudio.engine.own_model.subject import OwnModel
from gradstudio.engine.passes.flat import Flat
from gradstudio.engine.passes.forward_backward import Passes
from gradstudio.engine.step import clipping, loss_scale, optimizers, testing, weight_format
from gradstudio.engine.step.checks import Requests
from gradstudio.engine.step.spike_policy import SpikePolicy
from gradstudio.engine.step.testing import TestSetFigures
from gradstudio.engine.subject import BuiltIn, Subject


class TrainerState:
    """Everything that a step changes is in plain attributes: model, optimizer, scaler, task (position in the data and
    its generators), gradient_noise, step (number of the next one), taken (updates counted by the schedule) and passed
    (skipped batches).

    Only one thread at a time may use a trainer; several trainers in one process do not affect each other. Building one
    raises KnobError if the device is missing or does not support the experiment."""

    alone = True  # the one process that trains

    def __init__(self, experiment: Experiment) -> None:
        knobs = experiment
        if self.alone:
            ranks_allowed.check_alone(knobs, "this is not possible")
        self.experiment = experiment  # the values in force
        memory.check_rows(knobs)
        self.device = devices.resolve(knobs.run.device)
        runtime.prepare(knobs.run.deterministic)
        torch_itself.put_back()  # a studio file that was interrupted in mid-step may have changed it
        self.environment = environment.describe(self.device, knobs.run.deterministic)
        with random_state.preserve("cpu"):
            torch.manual_seed(knobs.run.seed)
            self.subject = _subject(knobs, self.device)
            model = self.subject.build(knobs)
        self.task = self.subject.task
        self.model = model.to(self.device)
        self.called = self.model  # by a pass: the model, or its wrapper
        self.layers = self.subject.layers(model)
        self.flat = Flat(self.subject.parameters(model))
        weight_format.draw(self._weights, knobs.precision.weights)
        self.passes = Passes(self.flat, list(model.buffers()), recorded=self.subject.recorded)
        self.check(experiment)
        self.batch_bytes = self.subject.saved_bytes(self.model, knobs)  # bytes of a micro-batch, if they are many
        self.optimizer = optimizers.build(self.flat, knobs)
        self.updates = optimizers.Updates(self.optimizer)
        self.scaler = loss_scale.build(knobs.precision, self.device)
        self.spike_policy, self.clip_memory = SpikePolicy(), clipping.Memory()
        self.gradient_noise = generator(knobs.run.seed, "gradient_noise")
        self.step = 0
        self.taken = 0
        self.passed = 0
        self.before = self.flat.new()  # the weights before the last update
        self.moved = False  # whether an update led from there to the weights: not at the start, nor after a rewind
        self.requests = Requests()  # of the next step
        self._known: Experiment | None = None  # the values for which the next two were computed
        self._settings, self._reads_at_once = settings(experiment), False
        self.forget_changes()

    def check(self, experiment: Experiment) -> None:
        """Raise KnobError if the device cannot train this model with these live values, though each is allowed."""
        self.subject.check(self.model, experiment)

    def change(self, name: str, value: Value) -> None:
        """Give a live knob a new value, between two steps. KnobError if the knob, the value or the device does not
        allow it."""
        knob = find_knob(name)
        if not knob.live:
            raise KnobError(f"{name} acts on restart and cannot change while the run goes on")
        experiment = self.experiment.with_value(name, value)
        check_passed(experiment, self.passed)
        spoils = name.startswith("problem.outlier") or name == "problem.nan_every"
        if name == "precision.dtype" or (spoils and not self.subject.judged):
            self.check(experiment)
        if name == "accumulation.steps" and self.device == "cpu":
            memory.check_batches(experiment, self.task.shape)
        before, self.experiment = self.experiment, experiment
        if name.startswith("loss.") or name in ("precision.dtype", "precision.scaling"):
            self.passes.forget()  # every other knob acts outside a pass, or makes it another kind
        if knob.section == "optimizer":
            optimizers.change(self.optimizer, self.experiment.optimizer)
        if knob.section == "precision":
            self._change_scaler(before.precision)

    def forget_changes(self) -> None:
        """Use the values in force now as the starting point for the changes of the next step."""
        self._unchanged = (self.step, self.experiment.precision, self.scaler)

    def _change_scaler(self, before: Precision) -> None:
        """Switch to the scaler that results from all changes of this step together. A change that was undone leaves it
        unchanged."""
        if self._unchanged[0] != self.step:
            self._unchanged = (self.step, before, self.scaler)
        _, before, scaler = self._unchanged
        self.scaler = loss_scale.change(scaler, before, self.experiment.precision, self.device)

    def evaluate(self) -> float | None:
        """Return the accuracy on the test set, None if the data has no test set; NaN if any output is non-finite, or
        without a test set any weight."""
        if not self.subject.judged:
            return None if self.weights_are_finite() else math.nan
        return self.test().accuracy

    def test(self) -> TestSetFigures:
        """Measure the model on the test set, in evaluation mode, without a trace in training."""
        self.model.eval()
        weights, average = self.flat.weights.data, optimizers.averaged_weights(self.optimizer)
        trained = None if average is None else weights.clone()
        try:
            if average is not None:
                weights.copy_(average)
            with torch.no_grad():
                return self.subject.test(self.model, self.experiment)
        finally:
            self.model.train()  # even if it does not fit into memory: then training goes on
            if trained is not None:
                weights.copy_(trained)

    @property
    def state(self) -> list[Tensor]:
        """The state of the model that a step may change besides `flat`: its buffers, and untrained parameters."""
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

    def skip_batches(self, stopped: Callable[[], bool] = lambda: False) -> bool:
        """Draw the batches that are to be skipped before the next step, and release each at once. They can take hours,
        so this ends early if it is `stopped`. Return whether all are skipped. It is done just before the step, so that
        a change that is undone before leaves no trace."""
        while self.passed < self.experiment.problem.skip_batches:
            if stopped():
                return False
            self.task.next_batch(self.model, self.experiment.accumulation.steps)
            self.passed += 1
        return True

    def next_batches(self) -> list[Any]:
        """Draw the micro-batches of the next step, after those that are to be skipped."""
        self.skip_batches()
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

    @cached_property
    def _weights(self) -> list[Tensor]:
        """The weights of each parameter, as views of the flat ones."""
        return self.flat.layout.views(self.flat.weights.data, self.flat.parameters)

    def _settings_in_force(self) -> Settings:
        """Return the settings in force for the treatment of a step's gradient; computed once for each experiment."""
        if self._known is not self.experiment:
            self._known = self.experiment
            self._settings = settings(self.experiment)
            each = self.experiment.clipping.kind == "per_example"
            self._reads_at_once = each or self.experiment.mistakes != Mistakes()
        return self._settings


def _subject(knobs: Experiment, device: str) -> Subject:
    """Return the subject of training for these knobs."""
    if knobs.studio_file is None:
        return BuiltIn(knobs, device)
    return OwnModel(knobs.studio_file, knobs, device)


def settings(knobs: Experiment) -> Settings:
    """Return the settings of these knobs for the treatment of a step's gradient."""
    limits = ("clipping.max_norm", "clipping.clip_value", "clipping.agc_factor")
    adaptive = knobs.clipping.kind in clipping.WARMUP  # to a limit that no knob sets
    limit = next((float(knobs[name]) for name in limits if knobs.applies(name) and not adaptive), 0.0)
    momentum, beta1, beta2 = (
        float(knobs[name]) if knobs.applies(name) else 0.0
        for name in ("optimizer.momentum", "optimizer.beta1", "optimizer.beta2")
    )
    kind, decay = knobs.optimizer.kind, float(knobs.optimizer.weight_decay)
    beta2 = optimizers.ALPHA if kind == "rmsprop" else beta2
    rho = knobs.optimizer.sam_rho
    return Settings(knobs.clipping.kind, limit, knobs.precision.dtype, kind, momentum, beta1, beta2, decay, rho)

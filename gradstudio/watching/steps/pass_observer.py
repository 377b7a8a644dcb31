"""The backward passes and clips of one optimizer, assembled into the current step."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from gradstudio.core.gradient_spikes import Spikes
from gradstudio.core.history import LOOK_EVERY
from gradstudio.core.provenance import Provenance
from gradstudio.core.row import Layer
from gradstudio.session.library.stored_runs import MOST_LAYERS
from gradstudio.watching.births.skipped_batches import SkippedBatch
from gradstudio.watching.hooks.loop_log import LoopLog
from gradstudio.watching.hooks.number_format import AutocastFormat
from gradstudio.watching.hooks.rank_place import current_place
from gradstudio.watching.hooks.torch_hooks import Roots
from gradstudio.watching.measuring.device_parameters import parameters_of
from gradstudio.watching.measuring.parameters import NotMeasurable
from gradstudio.watching.recorder.recorder import Recorder
from gradstudio.watching.script import model_layers
from gradstudio.watching.script.module_layers import ModuleLayers
from gradstudio.watching.steps.late_reduction import LateReduction
from gradstudio.watching.steps.logged_figures import LoggedFigures
from gradstudio.watching.steps.measured_step import MeasuredStep
from gradstudio.watching.steps.open_step import OpenStep
from gradstudio.watching.steps.script_facts import SettingsReader
from gradstudio.watching.steps.setup_checks import SetupChecks
from gradstudio.watching.steps.sink import Sink
from gradstudio.watching.steps.trained_models import TrainedModels
from gradstudio.watching.steps.training_checks import TrainingChecks
from gradstudio.watching.steps.watch_options import Options

_DEFAULT = Options()


class PassObserver(TrainedModels):
    """Observes what comes before the update of the trained parameters, and begins a run when they change."""

    def __init__(
        self,
        sink: Sink,
        optimizer: Optimizer | None,
        model: nn.Module | None,
        guard: Callable[[Any], Any],
        name: str = "",
        tensors: Sequence[Tensor] = (),
        options: Options = _DEFAULT,
    ) -> None:
        """`guard` wraps a function that torch calls in a step. `tensors` are the trained ones if there is neither an
        optimizer nor a model. One of `options.every` steps is measured in full, and so is each non-finite one."""
        self.options = options
        super().__init__(optimizer, model, tensors, guard)
        self._sink, self.name, self.told = sink, name, LoggedFigures()
        self.recorder = self.births.passes.recorder = Recorder(options.records, options.record_budget)
        self._guarded_ready = guard(self.make_ready)
        self.claimed = False  # whether it has trained; until then it may be trained by another thread
        self.latest = 0  # number of the latest backward pass that reached it, among those of the process
        self._refused: tuple[int, ...] | None = None  # of those that cannot be measured
        self.clipping = ("none", 0.0)
        self.autocast = AutocastFormat()
        self._rows = 0
        self._stepped_in_scaler = self._in_scaler = False  # whether the optimizer has, in the scaler's step
        self._loop, self._settings = LoopLog(), SettingsReader()
        self.schedules: list[weakref.ref[LRScheduler]] = []
        self._clock = time.perf_counter()
        self.layers: tuple[Layer, ...] = ()  # each parameter
        self._shown = ModuleLayers((), MOST_LAYERS)  # how they are shown
        self.refused = ""  # why the parameters cannot be measured, a sentence
        self._is_healthy = False  # whether the loss and the gradients of the latest step were finite
        self._searches = 0  # for the birth of non-finite gradients; if a step is suppressed, the run continues
        self._passes_over = False  # whether the script has continued after such a batch
        # delivers the latest step, if it is not reported yet
        self._undelivered: Callable[[], MeasuredStep] | None = None
        self.joined: Any = None  # the one that has taken over, with other optimizers of the same model
        self.first_of = 0, 0  # number of the backward pass of the first step, and how many it had
        self._roots: Roots | None = None  # of the running backward pass
        self._marks: list[int] | None = None  # of the gradients before the running backward pass
        self._step = OpenStep()
        self._spikes = Spikes() if options.on_spike else None
        self._late_reduction: LateReduction | None = None  # in a multi-process training
        self._training = TrainingChecks(self, partial(sink.find, self))

    def all_optimized_parameters(self) -> set[int] | None:
        """Return the ids of the parameters of all optimizers of the process; None if not all of them are watched."""
        return self._sink.all_optimized_parameters()

    def other_optimizers(self) -> list[tuple[Any, int]]:
        """Return the optimizers of other observers, each with its number of steps."""
        return self._sink.other_optimizers(self)

    def _restart(self) -> None:
        """Restart the step."""
        self._step = self._step.restarted()

    def deliver(self) -> None:
        """Deliver the row of the latest step, if that has not been reported yet."""
        raise NotImplementedError

    def make_ready(self, *, may_wait: bool = False) -> None:
        """Measure the gradient that the optimizer receives, and keep the weights, once before an update."""
        raise NotImplementedError

    def _step_by_hand(self) -> None:
        """Create a row for an update without an optimizer, if there was one."""
        raise NotImplementedError

    # ---- which parameters

    @property
    def micro_batches(self) -> int:
        """Backward passes of the step so far."""
        return self._step.micro_batches

    @property
    def next_step(self) -> int:
        return self._rows

    @property
    def next_row(self) -> int:
        """Row of the run's next step."""
        return self._rows // self.options.every

    @property
    def waits_to_join(self) -> bool:
        """Whether its first step is made and not reported yet."""
        return self._rows == 1 and self._undelivered is not None and self.first_of[1] > 0

    def is_beside(self, other: PassObserver) -> bool:
        """Return whether its first step came after the same backward pass, and it is watched in the same way."""
        return (self.first_of, self.thread, self.options) == (other.first_of, other.thread, other.options)

    def waits_for(self, model: nn.Module) -> bool:
        """Return whether it observes this model and knows no optimizer and no step of it yet."""
        return self._is_by_hand and any(each is model for each in self.models) and not self._rows

    @property
    def _has_more_to_tell(self) -> bool:
        return self._step.is_observed or self._undelivered is not None or self.births.has_passes

    def bind(self) -> bool:
        """Find the trained parameters, and begin a run if they differ from those before. Return whether there are
        any."""
        if self._trained is not None and self._are_unchanged():
            return True
        tensors = self.all_parameters()
        trained = [tensor for tensor in tensors if tensor.requires_grad and not is_lazy(tensor)]
        ids = tuple(map(id, trained))
        if not ids or ids == self._refused:
            return False
        if ids == self._trained and not self.parameters.are_resized:
            return True
        self.find_models()
        model = model_layers.together(self.models_in_script)
        ordered = self._in_order(model, list(dict.fromkeys(trained)))
        self.deliver()
        self._release()
        try:
            self.parameters = parameters_of(ordered)
        except NotMeasurable as fault:
            self._trained, self._refused = None, ids
            self._see([])
            self.refused = str(fault)
            self._sink.refuse(self, self.refused)
            return False
        self._see(tensors)
        self._device = ordered[0].device.type
        self._training.end()
        self._trained, self._rows, self._loop = ids, 0, LoopLog()
        self._training.begin()
        self._late_reduction = LateReduction() if current_place() is not None else None
        self.layers = self._layers_of(model, ordered)
        self._shown = ModuleLayers(self.layers, MOST_LAYERS)
        self._sink.begin(self, self._shown.layers)
        self.births.has_told = False
        self._restart()
        return True

    def has_any(self, gradients: set[int]) -> bool:
        """Return whether one of these is the gradient of one of the parameters. They are ids of existing tensors."""
        if self._trained is not None:
            return any(id(tensor.grad) in gradients for tensor in self.parameters.as_given)
        # they had no observed backward pass, for example if the script sets the gradients itself
        return (
            self.optimizer is not None
            and any(id(each.grad) in gradients for each in self.all_parameters())
            and self.bind()
        )

    # ---- callbacks

    def before_backward(self, roots: Roots) -> None:
        self.deliver()
        self._step.read()
        self._marks, self._roots = None, roots
        if self._step.is_ready:  # a further evaluation within a step, as in LBFGS: the row describes the first
            self._step.is_evaluated_again = True
            return
        if self._step.gradient is not None and self._optimizer() is None:
            self._step_by_hand()
        if self._trained is None:
            self._clock = time.perf_counter()
            if not self.bind():
                return
        elif not self._step.micro_batches:
            self._step.was_as_seen = self._are_unchanged()
            if not self._step.was_as_seen and self._have_grown():
                self.bind()
        self._marks = self.parameters.marks()
        self._training.before_backward(roots)
        if not self._step.has_given(self._marks) and self.parameters.all_gone(self._marks):
            # otherwise nothing was observed since the previous step
            if self._step.micro_batches or self._step.clip[0] != "none":
                broke_weights = self._on_discarded()
                self._restart()
                self.recorder.restart()
                self._step.birth = broke_weights
            self.parameters.release()
            self._step.scale = 1.0
            self._loop.on_zeroed()
        else:
            self._loop.on_gradients(self._marks)
        if self.schedules:
            self._loop.look_at_schedules(self.schedules, self._step.micro_batches)
        # whether figures are read before the update or right after it, as a GPU is still computing them
        later = self.parameters.answers_later and self._optimizer() is not None
        birth = self.births.before_backward(
            roots.tensors, scaled=roots.scale != 1, losses=roots.unscaled,
            number=None if later else roots.loss, later=later,
        )  # fmt: skip
        self._step.birth_before, self._step.birth = self._step.birth, self._step.birth or birth

    def _on_discarded(self) -> Provenance | None:
        """The script has discarded gradients without an optimizer step. If it moved the weights with them itself, as
        for a lookahead step, and they are non-finite, return where they were born."""
        if not self._step.micro_batches or self._step.is_ready:
            return None
        self._step.has_thrown = True
        self._training.on_discarded_gradients(finite=not self._step.is_broken and self._step.used is None)
        if self._step.used is not None:
            self._sink.play(self, self._step.used)
        if not self._step.is_broken or self._step.used is not None:
            self.births.restart()
            return None
        skipped = self._skipped_batch()
        if self.parameters.weight_marks() != self._step.weights_of_pass:
            return skipped.provenance
        self._step.skipped_batches.append(skipped)
        return None

    def _skipped_batch(self) -> SkippedBatch:
        birth = (self._step.birth, "") if self._step.birth is not None else self.births.birth_of_discarded()
        self.births.restart()
        return SkippedBatch(self._step.losses, *birth, after_backward=True)

    def _report_skipped_batches(self, *, finite: bool) -> None:
        """Report the batches that the script has skipped since the previous step."""
        step = self._step
        if not finite:  # a batch discarded before a step that is made all the same was not skipped
            step.drop_discarded()
        if self.births.suspects:
            step.skipped_batches += self.births.skipped_batches(finite=finite)
        for each in step.skipped_batches:
            self._passes_over = True
            self._sink.skip_batches(self, each)
        step.skipped_batches = []

    def used_elsewhere(self, by: Any) -> None:
        """Another observer's optimizer makes a step, so the gradients here may only be left over from its pass."""
        self._step.used = by
        if not self.recorder.states:
            self.recorder.restart()

    def after_backward(self, roots: Roots) -> bool:
        """Measure the result of a backward pass. Return whether it concerned these parameters."""
        self._roots = None
        if self._marks is None or self._trained is None:
            return self._step.is_ready
        moved = self.parameters.have_moved(self._marks) or (self.parameters.may_wait and self.births.reached_model)
        if not moved:  # the loss of another model
            self._step.birth = self._step.birth_before
            self.births.of_another()
            return self._step.is_ready
        step = self._step
        self.autocast.on_backward(roots.tensors, self._device, first=not step.micro_batches)
        every, optimizer = self.options.every, self._optimizer()
        step.measure_pass(
            roots, self.parameters, self.births,
            later=self.parameters.answers_later and optimizer is not None,
            may_pass_by=bool(self._rows % every) and optimizer is not None,
        )  # fmt: skip
        if (self._rows + every) % (every * LOOK_EVERY) == 0:  # the rules look at the row of this step
            untouched = self.parameters.unmoved_places(self._marks)
            step.unused = untouched if step.unused is None else step.unused & untouched
        step.used = None
        self._training.after_backward()
        if optimizer is None:
            self.parameters.keep_weights()
        return True

    def before_eval(self, module: nn.Module) -> None:
        self._training.before_eval(module)

    def on_clip(self, kind: str, limit: float) -> None:
        is_first, self._step.clip = self._step.clip[0] == "none", (kind, limit)
        if self.optimizer is not None:
            is_early = self._step.micro_batches == 0
            gone = is_early and self.parameters.all_gone()
            after_forward = self.births.passes.wait_for_gradient if is_early else None
            self._loop.on_clip(limit, self._step.micro_batches, gone=gone, after_forward=after_forward)
            self._forget_replaced()
            if self._step.gradient is None and self._step.read_figures is None and not gone:
                self._step.measure_unclipped(self.parameters, kind)
            elif is_first and not is_early and self._late_reduction is not None:
                self._late_reduction.before_clip(self.parameters, self._step)

    @property
    def setup(self) -> SetupChecks:
        return self._training.setup

    def after_clipping(self) -> None:
        """Gradients were clipped by their norm. Without an optimizer nothing else is observed before the update."""
        if self.optimizer is None and self._step.gradient is not None:
            self._step.norm_by_hand = self.parameters.keep_weights_and_norm()
        if self._step.before_clip is not None:
            self._step.marks_of_clip = self.parameters.marks()

    def was_clipped(self, kind: str, limit: float, gradients: set[int]) -> None:
        """Record a clip that came before this observer existed."""
        if self.has_any(gradients):
            self._step.clip = kind, limit

    def _forget_replaced(self) -> None:
        """Forget gradients that the script has replaced by others."""
        if self._step.has_thrown and self._step.forget_replaced(self.parameters):
            self._training.forget_discarded()

"""The steps of one optimizer, put together from what is heard: backward passes, clipping, the update. Each step becomes
a row."""

from __future__ import annotations

import math
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.history import LAYER_METRICS, LOOK_EVERY, Layer, loss_broke
from gradstudio.core.provenance import Provenance
from gradstudio.core.unknown import UNKNOWN, is_known
from gradstudio.engine.torch_internals.heard_clipping import clipping_is_heard
from gradstudio.session.library.store import MOST_LAYERS
from gradstudio.watching.births.passed_over import PassedOver
from gradstudio.watching.births.step_births import MADE_BY_THE_SCRIPT, MOST_SEARCHES
from gradstudio.watching.hearing.guard import say, say_once
from gradstudio.watching.hearing.heard_loop import NEAR, HeardLoop
from gradstudio.watching.hearing.hooks import Roots
from gradstudio.watching.hearing.number_format import AutocastHeard
from gradstudio.watching.hearing.rank_place import here
from gradstudio.watching.measuring.after_step import AfterStep
from gradstudio.watching.measuring.device_parameters import parameters_of
from gradstudio.watching.measuring.parameters import NOT_MEASURED, Change, Gradient, NotMeasurable, Parameters
from gradstudio.watching.measuring.parted_parameters import share_of
from gradstudio.watching.script import model_layers
from gradstudio.watching.script.module_layers import ModuleLayers
from gradstudio.watching.script.source_lines import is_own
from gradstudio.watching.steps.joined import main_of
from gradstudio.watching.steps.measured_step import MeasuredStep
from gradstudio.watching.steps.open_step import OpenStep
from gradstudio.watching.steps.script_facts import SettingsReader, loss_later, loss_of, rate_of
from gradstudio.watching.steps.trained import Trained
from gradstudio.watching.steps.training_look import TrainingLook
from gradstudio.watching.steps.watch_options import Options


class Sink(Protocol):
    """Takes what an observer sees."""

    def begin(self, observer: Observer, known: tuple[Layer, ...]) -> None: ...
    def end(self, observer: Observer) -> None: ...
    def forget(self, observer: Observer) -> None: ...
    def before_step(self, observer: Observer, optimizer: Optimizer) -> None: ...
    def after_step(self, observer: Observer, optimizer: Optimizer) -> None: ...
    def refuse(self, observer: Observer, why: str) -> None: ...
    def take(self, observer: Observer, made: MeasuredStep) -> bool: ...
    def stop_before(self, observer: Observer, made: MeasuredStep) -> None: ...
    def stop_short(self, observer: Observer, made: MeasuredStep, *, is_row: bool) -> None: ...
    def pass_over(self, observer: Observer, skipped: PassedOver) -> None: ...
    def play(self, one: Observer, other: Observer) -> None: ...
    def may_join(self, observer: Observer) -> bool: ...
    def find(self, observer: Observer, finding: Finding) -> None: ...
    def held_by_all(self) -> set[int] | None: ...


_DEFAULT = Options()


class Observer(Trained):
    """Watches the parameters that one optimizer trains. Without an optimizer, it takes an update by hand for a step:
    weights that have moved by the next backward pass."""

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
        """`guard` wraps a function that torch calls in a step. `tensors` are what is trained where there is neither an
        optimizer nor a model. One of `options.every` steps is measured in full, and each that is not finite."""
        self.options = options
        super().__init__(optimizer, model, tensors, guard)
        self._sink, self.name = sink, name
        self._guarded_ready, self._guarded_last = guard(self.make_ready), guard(self._last)
        self.thread = threading.get_ident()  # the one that trains it, and alone may look at its gradients
        self.claimed = False  # whether it has trained; until then it may come to train in another thread
        self.latest = 0  # number of the latest backward pass that reached it, of those of the process
        self.gone = False  # True once there is nothing left that could be trained
        self._settling = self._settled = False
        self._refused: tuple[int, ...] | None = None  # of those that cannot be measured
        self.clipping = ("none", 0.0)
        self.autocast = AutocastHeard()
        self._rows = 0
        self._stepped_in_scaler = False  # whether the optimizer has, in the scaler's step
        self._in_scaler = False
        self._loop, self._settings = HeardLoop(), SettingsReader()
        self.schedules: list[weakref.ref[LRScheduler]] = []
        self._epochs: list[int | None] = []  # of the schedules, at the latest backward pass
        self._clock = time.perf_counter()
        self.layers: tuple[Layer, ...] = ()  # each parameter
        self._shown: ModuleLayers | None = None  # how they are shown, where they are too many
        self.refused = ""  # why the parameters cannot be measured, a sentence
        self._searches = 0  # for the birth of what gradients hold; of a step that is left out, the run goes on
        self._passes_over = False  # whether the script has been seen to go on after such a batch
        self._undelivered: Callable[[], MeasuredStep] | None = None  # gives the latest step, where it is not told yet
        self.joined: Observer | None = None  # the one that has taken over, with other optimizers of the same model
        self.first_of = 0, 0  # number of the backward pass of the first step, and how many it had
        self._roots: Roots | None = None  # of the backward pass that is at work
        self._marks: list[int] | None = None  # of the gradients before the backward pass that is at work
        self._step = OpenStep()
        self._after_step: AfterStep | None = None  # of a training of several processes
        self._training = TrainingLook(self, partial(sink.find, self))

    def held_by_all(self) -> set[int] | None:
        """Return the ids of what any optimizer of the process holds; None where not all of them are watched."""
        return self._sink.held_by_all()

    def _anew(self) -> None:
        """Begin the step anew."""
        self._step = self._step.anew()

    # ---- which parameters

    @property
    def has_rows(self) -> bool:
        return self._rows > 0

    @property
    def micro_batches(self) -> int:
        """Backward passes of the step so far."""
        return self._step.micro_batches

    @property
    def next_step(self) -> int:
        return self._rows

    @property
    def waits_to_join(self) -> bool:
        """Whether its first step is made and not told yet."""
        return self._rows == 1 and self._undelivered is not None and self.first_of[1] > 0

    def _first(self) -> MeasuredStep:
        give, self._undelivered = self._undelivered, None
        assert give is not None
        return give()

    def waits_for(self, model: nn.Module) -> bool:
        """Return whether it observes this model and knows no optimizer and no step of it yet."""
        return self._is_by_hand and any(each is model for each in self.models) and not self._rows

    def _on_gone(self, of: object) -> None:
        """Let go of the parameters: the script has. Where the garbage collector calls this in the midst of torch or of
        the watch itself, or in another thread, what is left to record waits for `settle`: locks may be held."""
        if of is self._optimizer or (self._is_by_hand and of in self._models):
            self.gone = True
            frame = sys._getframe().f_back  # None at the end of Python
            if not self._has_more_to_tell or (frame is not None and is_own(frame.f_code.co_filename)):
                self.settle()

    @property
    def _has_more_to_tell(self) -> bool:
        """Whether something was heard since the latest row."""
        heard = bool(
            self._step.micro_batches or self._step.gradient is not None or self._step.passed_over or self._undelivered
        )
        return heard or self.births.has_heard

    def settle(self) -> bool:
        """Record what is left of one that is gone, and let go of its parameters, once. Return whether that is done: it
        is not while it is being done, which torch's own hooks hear, nor in a thread beside the one that trained it."""
        if self._settling or (self._has_more_to_tell and not self._is_of_this_thread):
            return self._settled
        self._settling = True
        try:
            if self._has_more_to_tell:
                self._guarded_last()
        except FloatingPointError as fault:  # asked for, but the script has gone on
            say(str(fault))
        finally:
            self.births.remove()
            self._let_go()
            self._trained = None
            self._see([])
            self._anew()
            self._settled = True
        return True

    @property
    def _is_of_this_thread(self) -> bool:
        """Whether this thread trained it, or that one has ended."""
        return self.thread == threading.get_ident() or self.thread not in {each.ident for each in threading.enumerate()}

    def _let_go(self) -> None:
        """Hold the parameters no longer, nor a copy of them. A measurement that is being made, which the end of a
        model may interrupt, keeps its own."""
        if self._trained is not None:
            self.parameters = Parameters(())

    def bind(self) -> bool:
        """Find the parameters that are trained, and begin a run where they are other ones than before. Return whether
        there are any."""
        if self._trained is not None and self._are_as_seen():
            return True
        held = self.held()
        trained = [tensor for tensor in held if tensor.requires_grad and not is_lazy(tensor)]
        ids = tuple(map(id, trained))
        if not ids or ids == self._refused:
            return False
        if ids == self._trained and not self.parameters.are_resized:
            return True
        self.find_models()
        models, optimizer = self.called, self.optimizer
        model = model_layers.together(models)
        ordered = model_layers.in_forward_order(model, list(dict.fromkeys(trained)))
        names = model_layers.names(model, optimizer)
        named = [(names.get(id(tensor), f"parameter{place}"), tensor) for place, tensor in enumerate(ordered)]
        self.deliver()
        self._let_go()
        try:
            self.parameters = parameters_of(ordered)
        except NotMeasurable as fault:
            self._trained, self._refused = None, ids
            self._see([])
            self.refused = str(fault)
            self._sink.refuse(self, self.refused)
            return False
        self._see(held)
        self._device = ordered[0].device.type
        self._training.end()
        self._trained, self._rows, self._loop = ids, 0, HeardLoop()
        self._training.begin()
        self._after_step = AfterStep() if here() is not None else None
        self.layers = model_layers.described(model, named)
        self._shown = ModuleLayers(self.layers, MOST_LAYERS) if len(self.layers) > MOST_LAYERS else None
        self._sink.begin(self, self.layers if self._shown is None else self._shown.layers)
        self.births.has_told = False
        self._anew()
        return True

    def _has_grown(self) -> bool:
        """Return whether parameters have come to be trained beside those that were, as where a layer is unfrozen, or
        in place of them all, or some have other sizes."""
        assert self._trained is not None
        self._step.was_as_seen = self._are_as_seen()
        if self._step.was_as_seen:
            return False
        if self.parameters.are_resized:
            return True
        if self.optimizer is None:
            return False
        held = self.held()
        now = [id(tensor) for tensor in held if tensor.requires_grad]
        before = set(self._trained)
        return bool(now) and (set(now) > before or before.isdisjoint(map(id, held)))

    def has_any(self, gradients: set[int]) -> bool:
        """Return whether one of these is the gradient of one of the parameters. They are ids of tensors that live."""
        if self._trained is not None:
            return any(id(tensor.grad) in gradients for tensor in self.parameters.given)
        # no backward pass was heard of them, as where the script puts gradients there itself
        return self.optimizer is not None and any(id(each.grad) in gradients for each in self.held()) and self.bind()

    # ---- what is heard

    def before_backward(self, roots: Roots) -> None:
        self.deliver()
        self._read()
        self._marks, self._roots = None, roots
        if self._step.is_ready:  # a further evaluation within a step, as LBFGS makes: the row describes the first
            self._step.is_evaluated_again = True
            return
        if self._step.gradient is not None and self._optimizer() is None:
            self._step_by_hand()
        if self._trained is None:
            self._clock = time.perf_counter()
            if not self.bind():
                return
        elif not self._step.micro_batches and self._has_grown():
            self.bind()
        self._marks = self.parameters.marks()
        self._training.before_backward(roots)
        if not self._are_as_given(self._marks) and self.parameters.all_gone(self._marks):
            if self._step.micro_batches or self._step.clip[0] != "none":  # else nothing was heard since the step before
                broke_weights = self._throw_away()
                self._anew()
                self._step.birth = broke_weights
            self.parameters.let_go()
            self._step.scale = 1.0
            self._loop.zeroed()
        else:
            self._loop.found(self._marks)
        if self.schedules:
            self._look_at_schedules()
        later = self._reads_later
        found = self.births.before_backward(
            roots.tensors, scaled=roots.scale != 1, losses=roots.unscaled,
            number=None if later else roots.loss, later=later,
        )  # fmt: skip
        self._step.birth_before, self._step.birth = self._step.birth, self._step.birth or found

    def _are_as_given(self, marks: list[int]) -> bool:
        """Return whether the gradients are 0 because the backward pass before, of the same step, gave such, rather than
        because the script has set them to 0."""
        return self._step.micro_batches > 0 and marks == self._step.zero_marks

    def _throw_away(self) -> Provenance | None:
        """Hear that the script has thrown gradients away that no update was made with. Return where they were born if
        it has moved the weights by them itself, as for a step that looks ahead, and they are not finite."""
        if not self._step.micro_batches or self._step.is_ready:
            return None
        self._step.has_thrown = True
        self._training.on_discarded_gradients(finite=not self._is_broken and self._step.used is None)
        if self._step.used is not None:
            self._sink.play(self, self._step.used)
        if self._is_broken and self._step.used is None:
            found, moved = self._thrown_away(), self.parameters.weight_marks() != self._step.weights_of_pass
            if moved:
                return found.provenance
            self._step.passed_over.append(found)
        else:
            self.births.begin_anew()
        return None

    @property
    def _is_broken(self) -> bool:
        """Whether the loss or the gradients of the step so far are not finite. An overflow of scaled gradients is no
        fault."""
        broken = self._step.gradient is not None and self._step.gradient.nonfinite > 0 and not self._is_scaled()
        return broken or loss_broke(self._step.losses)

    def _thrown_away(self) -> PassedOver:
        if self._step.birth is not None:
            self.births.begin_anew()
            return PassedOver(self._step.losses, self._step.birth, "", after_backward=True)
        return PassedOver(self._step.losses, *self.births.thrown_away(), after_backward=True)

    def used_elsewhere(self, by: Observer) -> None:
        """Hear that the optimizer of another observer makes a step: the gradients here may be no more than what its
        backward pass left."""
        self._step.used = by

    def after_backward(self, roots: Roots) -> bool:
        """Measure what a backward pass gave. Return whether it was one of these parameters."""
        self._roots = None
        if self._marks is None or self._trained is None:
            return self._step.is_ready
        moved = self.parameters.have_moved(self._marks) or (self.parameters.may_wait and self.births.came_back)
        if not moved:  # the loss of another model
            self._step.birth = self._step.birth_before
            self.births.of_another()
            return self._step.is_ready
        step = self._step
        self.autocast.passed(roots.tensors, self._device, first=not step.micro_batches)
        if step.micro_batches and roots.scale != step.scale:
            step.scale = UNKNOWN  # the gradients are sums of such with different scales
        else:
            step.scale = roots.scale
        step.micro_batches += 1
        if not self._reads_later:
            self._take_loss(loss_of(roots))
        may_pass_by = bool(self._rows % self.options.every) and self._optimizer() is not None and step.scale == 1
        if self._reads_later:
            figures, loss = self.parameters.measure_gradient_later(step.scale), loss_later(roots)
            marks = self.parameters.marks(), self.parameters.weight_marks()

            def read() -> None:
                found = loss()
                self._take_loss(found)
                birth = self.births.look_at_losses(found)
                step.birth = step.birth or birth
                self._take_figures(figures(), *marks, may_pass_by=may_pass_by)

            step.read_figures = read
        elif may_pass_by:
            step.gradient = self.parameters.glance_at_gradient()
            if step.gradient.nonfinite or loss_broke(step.losses):
                may_pass_by, step.gradient = False, self.parameters.measure_gradient(step.scale)
        else:
            step.gradient = self.parameters.measure_gradient(step.scale)
        every = self.options.every
        if (self._rows + every) % (every * LOOK_EVERY) == 0:  # the rules look at the row of this step
            self._look_for_unused(self._marks)
        step.used = None
        self._training.after_backward()
        if step.read_figures is None and step.gradient is not None:
            self._take_figures(step.gradient, None, None, may_pass_by=may_pass_by)
        if self._optimizer() is None:
            self.parameters.keep_weights()
        return True

    @property
    def _reads_later(self) -> bool:
        """Whether the figures of a backward pass are read just before the update, as a GPU is still at work on them."""
        return self.parameters.answers_later and self._optimizer() is not None

    def _take_loss(self, loss: float) -> None:
        step = self._step
        if step.losses == step.losses or is_known(step.losses):  # a call less for all but NaN
            step.losses += loss

    def _take_figures(
        self, gradient: Gradient, marks: list[int] | None, weights: list[int] | None, *, may_pass_by: bool
    ) -> None:
        """Take what was measured of the latest backward pass. `marks` are those of gradients and weights right after
        it, None for those of now."""
        step = self._step
        step.gradient = gradient
        is_finite = not gradient.nonfinite and not loss_broke(step.losses)
        step.is_passed_by = may_pass_by and is_finite
        step.zero_marks = [] if gradient.norm else self.parameters.marks() if marks is None else marks
        if is_finite:
            self.births.all_finite()
        elif self._is_broken:
            step.weights_of_pass = self.parameters.weight_marks() if weights is None else weights

    def _read(self) -> None:
        """Wait for the figures of the latest backward pass, if a GPU is still at work on them."""
        read, self._step.read_figures = self._step.read_figures, None
        if read is not None:
            read()

    def _look_for_unused(self, before: list[int]) -> None:
        """Keep which gradients a backward pass has left as they were. `before` are their marks before it."""
        untouched = self.parameters.unmoved(before)
        self._step.unused = untouched if self._step.unused is None else self._step.unused & untouched

    def clipped(self, kind: str, limit: float) -> None:
        self._step.clip = (kind, limit)
        if self.optimizer is not None:
            is_early = self._step.micro_batches == 0
            gone = is_early and self.parameters.all_gone()
            after_forward = self.births.waits_for_gradient if is_early else None
            self._loop.clipped(limit, self._step.micro_batches, gone=gone, after_forward=after_forward)
            if self._step.has_thrown:
                self._forget_replaced()
            if self._step.gradient is None and self._step.read_figures is None and not gone:
                self._measure_unclipped(kind)

    def _measure_unclipped(self, kind: str) -> None:
        """Measure gradients that no backward pass was heard of, unless this is one more clip of the same step."""
        step = self._step
        if step.before_clip is None or (kind == "norm" and self.parameters.marks() != step.marks_of_clip):
            step.before_clip = self.parameters.measure_gradient()
        step.marks_of_clip = None

    def after_clipping(self) -> None:
        """Hear that gradients were clipped by their norm. Without an optimizer nothing else is heard before the
        update."""
        if self.optimizer is None and self._step.gradient is not None:
            self._step.norm_by_hand = self.parameters.keep_weights_and_norm()
        if self._step.before_clip is not None:
            self._step.marks_of_clip = self.parameters.marks()

    def was_clipped(self, kind: str, limit: float, gradients: set[int]) -> None:
        """Hear of a clip before there was this observer."""
        if self.has_any(gradients):
            self._step.clip = kind, limit

    def _forget_replaced(self) -> None:
        """Forget the gradients that were measured where the script, which has thrown gradients away, has put others
        there that are made of them."""
        self._read()
        step = self._step
        if step.gradient is not None and not self.parameters.gradients_are_there:
            self._training.forget_discarded()
            step.were_finite = not (self._is_broken or step.passed_over)
            step.passed_over = [each for each in step.passed_over if not each.after_backward]  # no batch was skipped
            step.gradient, step.losses, step.micro_batches = None, UNKNOWN, 0

    def _look_at_schedules(self) -> None:
        """See whether a scheduler has moved since the backward pass before."""
        now = [getattr(found, "last_epoch", None) for each in self.schedules if (found := each()) is not None]
        if self._step.micro_batches and now != self._epochs:
            self._loop.scheduled(self._step.micro_batches)
        self._epochs = now

    def before_step(self, optimizer: Optimizer, arguments: Any, named: Any) -> Any:
        """Hear that the optimizer steps. Return other arguments where it brings its own backward passes."""
        self.deliver()
        is_within = bool(self._step.left_out) or (self._step.is_ready and self.parameters.gradients_are_there)
        if is_within and not self._step.is_evaluated_again:
            return None  # within the step of a class that calls the step of the class above
        if self._step.is_ready:  # the step before ended with an exception
            self._anew()
        closure = named.get("closure") if "closure" in named else arguments[1] if len(arguments) > 1 else None
        of_its_own = isinstance(closure, (nn.Module, type))  # what the step of somebody's optimizer takes
        if not callable(closure) or of_its_own:
            self.make_ready()
            return None

        def heard(*given: Any, **others: Any) -> Any:
            loss = closure(*given, **others)
            self._guarded_ready()
            return loss

        self._anew()
        if "closure" in named:
            return arguments, {**named, "closure": heard}
        return (arguments[0], heard, *arguments[2:]), named

    def make_ready(self) -> None:
        """Measure the gradient that the optimizer gets, and keep the weights, once before an update."""
        if self._step.is_ready:
            return
        if self._step.has_thrown:
            self._forget_replaced()
        if self._step.has_thrown or not self._step.was_as_seen or self._rows % self.options.every:
            self._read()  # else only once more is on its way
        if self._roots is not None and not self._step.micro_batches:  # it steps within the backward pass
            self._step.losses, self._step.micro_batches = loss_of(self._roots), 1
            self._step.scale = self._roots.scale
        heard, clip = (self._step.losses, self._step.micro_batches, self._step.scale), self._step.clip
        if not (self._step.micro_batches and self._step.was_as_seen) and not self.bind():
            return
        self._step.is_ready, optimizer = True, main_of(self._optimizer())
        step = self._step
        if optimizer is not None:
            step.rate = rate_of(optimizer.param_groups[0])  # which the step itself may change
        # Where nothing was heard of a backward pass, or it was one for more parameters than these.
        if step.gradient is None and step.read_figures is None:
            step.clip = clip
            step.gradient = self._gradient_without_pass()
            step.losses, step.micro_batches, step.scale = heard if heard[1] else (UNKNOWN, 0, step.scale)
            step.is_empty = self.parameters.have_no_gradients()
            if not heard[1]:
                self.autocast.stepped_alone(self._device)
        if step.is_passed_by:
            return
        step.clipped_norm = self.parameters.keep_weights_and_norm_later(keep=self.options.updates)
        self._read()
        assert step.gradient is not None
        factor = getattr(optimizer, "grad_scale", None)  # a fused optimizer divides the scale out by itself
        step.factor = 1.0 if factor is None else float(factor)
        if step.gradient.nonfinite and step.were_finite:
            step.explain(None, MADE_BY_THE_SCRIPT)
        elif step.gradient.nonfinite and not self._is_scaled():
            self._searches += 1
            if self._searches <= MOST_SEARCHES:
                step.explain(self.births.explain(), self.births.unknown)
        if self.options.spares_weights and optimizer is not None and not self._is_scaled():
            self._spare_weights()

    def _spare_weights(self) -> None:
        """Stop the script, or leave its update out, as it was asked for, before what is not finite reaches the weights
        and the state of the optimizer."""
        step = self._step
        if not self._is_broken:
            if math.isfinite(step.clipped_norm()):
                return
            step.gradient = self.parameters.measure_gradient()  # the script has spoiled it since the backward pass
            step.explain(None, MADE_BY_THE_SCRIPT)
        if self.options.on_nonfinite == "skip":
            if self._after_step is not None:
                say_once("an update is not skipped where several ranks train, as the others may make it")
                return
            if not math.isfinite(step.clipped_norm()):  # else the script has mended it
                step.leave_out(self.parameters.tensors)
            return
        if step.birth is not None or loss_broke(step.losses):
            step.explain(step.birth, self.births.why_unknown)
        self._tell_passed_over(finite=False)
        made = self._without_update(step.losses, after_backward=True)
        self._rows += 1
        self.births.clear()
        self._step = OpenStep()
        self._sink.stop_before(self, made)

    def _gradient_without_pass(self) -> Gradient:
        """Return gradients that no backward pass was heard of, as they were before they were clipped. Their norms are
        unknown where that was not heard, or where they have changed since."""
        step = self._step
        if self._was_not_clipped:
            return self.parameters.measure_gradient()
        if step.before_clip is not None and step.marks_of_clip in (None, self.parameters.marks()):
            return step.before_clip
        return self.parameters.measure_gradient(UNKNOWN)

    @property
    def _was_not_clipped(self) -> bool:
        """Whether no clip of this step was heard, and one would have been."""
        return self._step.clip[0] == "none" and clipping_is_heard()

    def _is_scaled(self) -> bool:
        return self._step.scale != 1

    def after_step(self, optimizer: Optimizer) -> None:
        self._stepped_in_scaler = True
        gradient = self._step.gradient
        if self._step.is_empty and gradient is not None and not self._has_moved(gradient):
            self._training.on_empty_step()
            self._anew()  # as Lightning has it for a batch that is skipped: nothing moves without a gradient
        elif self._step.left_out:
            self._finish(skipped=True)
        elif self._step.is_ready:
            self._finish(skipped=found_inf(optimizer))

    def _has_moved(self, gradient: Gradient) -> bool:
        """Return whether the update has changed a weight, as far as that is measured."""
        return self.options.updates and bool(self.parameters.measure_change(gradient.layers).norm)

    def before_scaled_step(self) -> None:
        self._stepped_in_scaler, self._in_scaler = False, True

    def after_scaled_step(self, optimizer: Optimizer) -> None:
        """Hear the end of a scaler's step. Where no step of the optimizer came of it, it was skipped."""
        self._in_scaler = False
        if not self._stepped_in_scaler and self._trained is not None:
            self.make_ready()
            self._leave_to_scaler(optimizer)

    def _leave_to_scaler(self, _optimizer: Optimizer) -> None:
        self._finish(skipped=True)

    def _step_by_hand(self) -> None:
        """Make a row of an update without an optimizer, if there was one."""
        assert self._step.gradient is not None
        change = self.parameters.measure_change(self._step.gradient.layers)
        if change.norm > 0 or math.isnan(change.norm):
            norm = self._step.gradient.norm if self._was_not_clipped else self._step.norm_by_hand
            self._step.clipped_norm, self._step.factor = lambda: norm, 1.0
            self._step.is_ready = True
            self._finish(skipped=False)

    def close(self) -> None:
        """Make the row of a last update by hand, or of a last pass whose loss is not finite."""
        self._last()
        self.births.remove()

    def _last(self) -> None:
        self._read()
        self.deliver()
        if self._is_by_hand and self._trained is not None and self._step.gradient is not None:
            self._step_by_hand()
            self.deliver()
        if self._trained is not None:
            self._training.end()
        ended = self.births.at_the_end()
        if self._trained is None and (ended is None or not self.bind()):
            return
        self._tell_passed_over(finite=True)
        if ended is not None:
            self._stop_short(PassedOver(*ended, self.births.unknown, after_backward=False))
            self.births.clear()
        elif (
            not self._is_by_hand
            and self._step.micro_batches
            and not (self._step.is_ready or self._step.used is not None)
            and self._is_broken
        ):
            self._stop_short(self._thrown_away())
        elif self._step.explained[0] is not None:  # the update of it has raised
            self._sink.stop_short(self, self._without_update(UNKNOWN, after_backward=False), is_row=False)
        self._anew()

    def _stop_short(self, skipped: PassedOver) -> None:
        """Take the end of the script after this batch for its answer to it, if it was not seen to go on before."""
        if self._rows and (self._passes_over or (skipped.after_backward and self.parameters.all_gone())):
            self._sink.pass_over(self, skipped)
            return
        self._step.explain(skipped.provenance, skipped.unknown)
        made = self._without_update(skipped.loss, after_backward=skipped.after_backward)
        self._sink.stop_short(self, made, is_row=skipped.after_backward or is_known(skipped.loss))

    def _without_update(self, loss: float, *, after_backward: bool) -> MeasuredStep:
        """Return what is known of a pass after which the script ended: little more than its loss."""
        step, gradient = self._step, self._step.gradient if after_backward else None
        if gradient is None or not gradient.layers.size:
            count = len(self.layers if self._shown is None else self._shown.layers)
            layers = np.full((len(LAYER_METRICS), count), UNKNOWN)
        else:
            gradient.layers[1:3] = UNKNOWN
            layers = gradient.layers if self._shown is None else self._shown.together(gradient.layers)
        gradient = Gradient(UNKNOWN, 0, layers) if gradient is None else gradient._replace(layers=layers)
        dtype = self.autocast.dtype if after_backward else self.autocast.of_next_pass
        settings = self._settings.read(main_of(self.optimizer), self.clipping, dtype, self.parameters.tensors)
        seconds = time.perf_counter() - self._clock
        return MeasuredStep(
            self._rows, loss, gradient, NOT_MEASURED, UNKNOWN, "none", UNKNOWN, step.scale, False, seconds,
            self.optimizer is None, None, settings, birth=step.explained,
        )  # fmt: skip

    # ---- the row

    def _finish(self, *, skipped: bool, change: Callable[[], Change] | None = None) -> None:
        """Give what was measured of the step that has just been made."""
        step = self._step
        gradient = step.gradient
        assert gradient is not None
        after = None
        if self._after_step is not None and change is None and not (skipped or step.is_passed_by):
            after = self._after_step.look(self.parameters, step.clipped_norm, step.factor)
        if change is None:
            gradient.layers[1:3] = UNKNOWN
            is_kept = not step.is_passed_by and (self.options.updates or self._optimizer() is None)
            change = self.parameters.measure_change_later(gradient.layers) if is_kept else _not_measured
        measured = change
        clipped, factor, is_evaluated_again = step.clipped_norm, step.factor, step.is_evaluated_again
        self.parameters.let_go()
        if step.birth is not None or loss_broke(step.losses):
            step.explain(step.birth, self.births.why_unknown)
        now = time.perf_counter()
        seconds, self._clock = now - self._clock, now
        optimizer = self._optimizer()
        self.clipping = step.clip
        loop = None if optimizer is None else self._loop.stepped(
            step.micro_batches, scale=step.scale, around=step.scale != 1 and self._around_the_scaler(gradient),
            skipped=skipped,
            lost=self._training.on_step(step.micro_batches, gradient.norm, is_clipped=step.clip[0] != "none"),
            left=self.parameters.marks() if self._loop.wants_marks else None,
        )  # fmt: skip
        made = MeasuredStep(
            self._rows, step.losses, gradient, NOT_MEASURED, UNKNOWN, step.clip[0],
            step.rate, step.scale, skipped, seconds, optimizer is None, loop,
            self._settings.read(main_of(optimizer), self.clipping, self.autocast.dtype, self.parameters.tensors),
            None if step.unused is None else self._named(step.unused),
            bool(step.left_out),
            after,
            birth=step.explained,
        )  # fmt: skip
        if step.passed_over or self.births.suspects:
            self._tell_passed_over(finite=not made.went_nonfinite)
        self._rows += 1

        def give() -> MeasuredStep:
            found = measured()
            if is_evaluated_again:
                found = found._replace(along_gradient=UNKNOWN)  # the gradients are those of the latest pass
            return made._replace(change=found, clipped_norm=clipped() / factor)

        self.deliver()
        self._undelivered = give
        self.first_of = self.latest, step.micro_batches
        if self._rows == 1:
            waits = not made.went_nonfinite and optimizer is not None and self._sink.may_join(self)
        else:
            waits = self.parameters.answers_later and not made.brings_news
        if not waits:
            self.deliver()
        self.births.clear()
        step.put_back()
        self._step = OpenStep()

    def _named(self, places: set[int]) -> tuple[str, ...]:
        """Return the layers at these places."""
        if self._shown is not None:
            return self._shown.all_of(places)
        return tuple(self.layers[place].name for place in sorted(places))

    def deliver(self) -> None:
        """Give the row of the latest step, where a GPU was still working its figures out. By the next backward pass it
        has, so that the script does not wait for them."""
        give, self._undelivered = self._undelivered, None
        if give is not None:
            self.births.has_told = self._sink.take(self, self._as_shown(give()))

    def _as_shown(self, made: MeasuredStep) -> MeasuredStep:
        if self._shown is None or not made.gradient.layers.size:
            return made
        shown, after = made.gradient._replace(layers=self._shown.together(made.gradient.layers)), made.after
        if after is not None:
            after = after._replace(layers=self._shown.together(after.layers))
        return made._replace(gradient=shown, after=after)

    def share(self, ranks: int) -> dict[str, list[int]]:
        """Return which part of each layer this rank has, of so many."""
        together = None if self._shown is None else self._shown.grouped
        return share_of(self.parameters, ranks, together)

    def _tell_passed_over(self, *, finite: bool) -> None:
        """Tell of the batches that the script has passed over since the step before."""
        step = self._step
        if not finite:  # what was thrown away before a step that is made all the same was no batch to skip
            step.passed_over = [each for each in step.passed_over if not each.after_backward]
        if self.births.suspects:
            step.passed_over += self.births.passed_over(finite=finite)
        for each in step.passed_over:
            self._passes_over = True
            self._sink.pass_over(self, each)
        step.passed_over = []

    def _around_the_scaler(self, gradient: Gradient) -> bool:
        """Return whether the optimizer got a gradient that still carries the loss scale."""
        step = self._step
        if step.scale <= 1 / NEAR or self._in_scaler:
            return False
        return 0 < NEAR * step.scale * gradient.norm <= step.clipped_norm() / step.factor < math.inf


def found_inf(optimizer: Any) -> bool:
    """Return whether a fused optimizer has skipped its update by itself."""
    skips = getattr(optimizer, "found_inf", None)
    return skips is not None and bool(float(skips))


def _not_measured() -> Change:
    """Stands for a change that nobody measures."""
    return NOT_MEASURED

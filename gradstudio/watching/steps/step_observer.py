"""The steps of one optimizer, assembled from observations: backward passes, clipping, the update. Each step becomes a
row."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from torch import nn
from torch.optim import Optimizer

from gradstudio.core.history import LAYER_METRICS
from gradstudio.core.loop_calls import Loop
from gradstudio.core.row import loss_broke
from gradstudio.core.unknown import UNKNOWN, is_known
from gradstudio.watching.births.skipped_batches import SkippedBatch
from gradstudio.watching.births.step_births import MADE_BY_THE_SCRIPT, MOST_SEARCHES
from gradstudio.watching.hooks.guard import say_once
from gradstudio.watching.measuring.parameters import NOT_MEASURED, Change, Gradient
from gradstudio.watching.measuring.sharded_parameters import share_of
from gradstudio.watching.recorder.kept_state import KeptStep
from gradstudio.watching.script.module_layers import ModuleLayers
from gradstudio.watching.steps.joined_optimizers import main_of, members_of
from gradstudio.watching.steps.measured_step import MeasuredStep
from gradstudio.watching.steps.open_step import OpenStep
from gradstudio.watching.steps.pass_observer import PassObserver
from gradstudio.watching.steps.script_facts import loss_of, rate_of


class Observer(PassObserver):
    """Watches the parameters of one optimizer. Without an optimizer, it treats a manual update as a step: weights that
    have moved by the next backward pass."""

    def before_step(self, optimizer: Optimizer, arguments: Any, named: Any) -> Any:
        """The optimizer is about to step. Return other arguments if its closure makes backward passes of its own."""
        self.deliver()
        is_within = self._step.left_out or (self._step.is_ready and self.parameters.gradients_are_current)
        if is_within and not self._step.is_evaluated_again:
            return None  # within the step of a subclass that calls the step of its base class
        if self._step.is_ready:  # the previous step ended with an exception
            self._restart()
        closure = named.get("closure") if "closure" in named else arguments[1] if len(arguments) > 1 else None
        if not callable(closure) or isinstance(closure, (nn.Module, type)):  # an argument of a user's optimizer
            self.make_ready(may_wait=True)
            return None
        self._restart()
        return _with_closure(arguments, named, closure, self._guarded_ready)

    def make_ready(self, *, may_wait: bool = False) -> None:
        """Measure the gradient that the optimizer receives, and keep the weights, once before an update. With
        `may_wait` the step ends in `after_step`, which reads what has not been read."""
        if self._step.is_ready:
            return
        self._forget_replaced()
        if self._step.has_thrown or not self._step.was_as_seen or self._rows % self.options.every:
            self._step.read()  # otherwise only once more is on its way
        if self._roots is not None and not self._step.micro_batches:  # it steps within the backward pass
            self._step.losses, self._step.micro_batches = loss_of(self._roots), 1
            self._step.scale = self._roots.scale
        heard, clip = (self._step.losses, self._step.micro_batches, self._step.scale), self._step.clip
        if not (self._step.micro_batches and self._step.was_as_seen) and not self.bind():
            return
        self._step.is_ready, optimizer = True, main_of(self._optimizer())
        step = self._step
        step.rate = UNKNOWN if optimizer is None else rate_of(optimizer.param_groups[0])  # the step may change it
        # If no backward pass was observed, or it was one for more parameters than these.
        if step.gradient is None and step.read_figures is None:
            step.take_without_pass(self.parameters, clip, *heard)
            if not heard[1]:
                self.autocast.on_unobserved_step(self._device)
        if step.is_passed_by:
            self._record_step()
            return
        step.clipped_norm = self.parameters.keep_weights_and_norm_later(keep=self.options.updates)
        factor = getattr(optimizer, "grad_scale", None)  # a fused optimizer divides the scale out itself
        step.factor = 1.0 if factor is None else float(factor)
        may_wait = may_wait and self._is_healthy and self._late_reduction is None
        if may_wait and step.can_wait(self.parameters, self.options) and self.recorder.can_wait(self._rows, optimizer):
            step.judge_when_read(self.births, self.parameters, partial(self._judge_after_update, self._record_step()))
        else:
            step.read()
            self._judge(step)

    def _judge(self, step: OpenStep) -> None:
        """Before the update, look for the birth of what is not finite, and suppress the update if that is asked for."""
        assert step.gradient is not None
        spike = self._spikes.look(step.gradient.norm) if self._spikes is not None and step.is_finite else ""
        self._is_healthy = step.is_finite
        if self._late_reduction is not None and not self.parameters.answers_later:  # other ranks may have spoiled it
            self._is_healthy = self._is_healthy and not loss_broke(step.clipped_norm())
        self._record_step(healthy=self._is_healthy and not spike)
        if spike:
            self._spare_from_spike(spike)
        self._explain_gradient(step)
        if self.options.spares_weights and self._optimizer() is not None and not step.is_scaled:
            self._spare_weights()

    def _judge_after_update(self, kept: KeptStep | None, step: OpenStep) -> None:
        self._explain_gradient(step)
        self._is_healthy = step.is_finite
        if kept is not None and step.gradient is not None:
            kept.loss, kept.norm = step.losses, step.gradient.norm
            self.recorder.is_past_break = not step.is_finite

    def _explain_gradient(self, step: OpenStep) -> None:
        """Look for the birth of gradients that are not finite."""
        if step.gradient is None or not step.gradient.nonfinite:
            return
        if step.were_finite:
            step.explain(None, MADE_BY_THE_SCRIPT)
        elif not step.is_scaled:
            self._searches += 1
            if self._searches <= MOST_SEARCHES:
                step.explain(self.births.explain(), self.births.unknown)

    def _record_step(self, *, healthy: bool = True) -> KeptStep | None:
        """Let the recorder keep the step, and the state before its update."""
        step = self._step
        if self.recorder.is_off or (optimizer := self._optimizer()) is None:
            return None
        kept = KeptStep(self._rows, [], [], step.clip, step.losses, step.gradient.norm if step.gradient else UNKNOWN)
        self.recorder.before_update(kept, self.parameters.as_given, members_of(optimizer), healthy=healthy)
        return kept

    @property
    def _may_leave_out(self) -> bool:
        """Whether updates can be suppressed: not if several ranks train, as the others may make them."""
        if self._late_reduction is not None:
            say_once("an update is not skipped where several ranks train, as the others may make it")
        return self._late_reduction is None

    def _spare_from_spike(self, spike: str) -> None:
        """Suppress an update whose gradient norm is a spike, and go back if that was requested."""
        if not self._may_leave_out:
            return
        step = self._step
        back = self.recorder.rewind() if self.options.on_spike == "rewind" else None
        went = f"; weights and optimizer are those before step {back:,} again" if back is not None else ""
        step.spike = f"an update was left out: {spike}{went}"
        step.leave_out(self.parameters.tensors)

    def _spare_weights(self) -> None:
        """Stop the script, or suppress its update, as requested, before a non-finite value reaches the weights and the
        state of the optimizer."""
        step = self._step
        if not self._step.is_broken:
            if math.isfinite(step.clipped_norm()):
                return
            step.gradient = self.parameters.measure_gradient()  # the script has spoiled it since the backward pass
            step.explain(None, MADE_BY_THE_SCRIPT)
        if self.options.on_nonfinite == "skip":
            if self._may_leave_out and not math.isfinite(step.clipped_norm()):  # otherwise the script has corrected it
                step.leave_out(self.parameters.tensors)
            return
        if step.birth is not None or loss_broke(step.losses):
            step.explain(step.birth, self.births.why_unknown)
        self._report_skipped_batches(finite=False)
        measured_step = self._without_update(step.losses, after_backward=True)
        self._rows += 1
        self.births.clear()
        self._step = OpenStep()
        self._sink.stop_before(self, measured_step)

    def after_step(self, optimizer: Optimizer) -> None:
        self._stepped_in_scaler = True
        self._step.read()
        gradient = self._step.gradient
        if self._step.is_empty and gradient is not None and not (
            self.options.updates and self.parameters.measure_change(gradient.layers).norm
        ):  # fmt: skip
            self._training.reach.on_empty_step()
            self._restart()  # as Lightning does for a skipped batch: nothing moves without a gradient
        elif self._step.left_out:
            self._finish(skipped=True)
        elif self._step.is_ready:
            self._finish(skipped=found_inf(optimizer))

    def before_scaled_step(self) -> None:
        self._stepped_in_scaler, self._in_scaler = False, True

    def after_scaled_step(self, optimizer: Optimizer) -> None:
        """A scaler's step has ended. If the optimizer made no step in it, it was skipped."""
        self._in_scaler = False
        if not self._stepped_in_scaler and self._trained is not None:
            self.make_ready()
            self._leave_to_scaler(optimizer)

    def _leave_to_scaler(self, _optimizer: Optimizer) -> None:
        self._finish(skipped=True)

    def _step_by_hand(self) -> None:
        """Create a row for an update without an optimizer, if there was one."""
        assert self._step.gradient is not None
        change = self.parameters.measure_change(self._step.gradient.layers)
        if change.norm > 0 or math.isnan(change.norm):
            norm = self._step.gradient.norm if self._step.was_not_clipped else self._step.norm_by_hand
            self._step.clipped_norm, self._step.factor = lambda: norm, 1.0
            self._step.is_ready = True
            self._finish(skipped=False)

    def close(self) -> None:
        """Create the row of a last manual update, or of a last pass with a non-finite loss."""
        self._last()
        self.births.remove()

    def _last(self) -> None:
        self._step.read()
        self.deliver()
        if self._is_by_hand and self._trained is not None and self._step.gradient is not None:
            self._step_by_hand()
            self.deliver()
        if self._trained is not None:
            self._training.end()
        ended = self.births.at_the_end()
        if self._trained is None and (ended is None or not self.bind()):
            return
        self._report_skipped_batches(finite=True)
        if ended is not None:
            self._stop_short(SkippedBatch(*ended, self.births.unknown, after_backward=False))
            self.births.clear()
        elif (
            not self._is_by_hand
            and self._step.micro_batches
            and not (self._step.is_ready or self._step.used is not None)
            and self._step.is_broken
        ):
            self._stop_short(self._skipped_batch())
        elif self._step.explained[0] is not None:  # its update has raised
            self._sink.stop_short(self, self._without_update(UNKNOWN, after_backward=False), is_row=False)
        self._restart()

    def _stop_short(self, skipped: SkippedBatch) -> None:
        """Treat the end of the script as its reaction to this batch, unless it went on after an earlier one."""
        if self._rows and (self._passes_over or (skipped.after_backward and self.parameters.all_gone())):
            self._sink.skip_batches(self, skipped)
            return
        self._step.explain(skipped.provenance, skipped.unknown)
        measured_step = self._without_update(skipped.loss, after_backward=skipped.after_backward)
        self._sink.stop_short(self, measured_step, is_row=skipped.after_backward or is_known(skipped.loss))

    def _without_update(self, loss: float, *, after_backward: bool) -> MeasuredStep:
        """Return what is known of a pass after which the script ended: little more than its loss."""
        step = self._step
        gradient = _without_change(step.gradient if after_backward else None, self._shown)
        dtype = self.autocast.dtype if after_backward else self.autocast.of_next_pass
        settings = self._settings.read(main_of(self.optimizer), self.clipping, dtype, self.parameters.tensors)
        return MeasuredStep(
            self._rows, loss, gradient, NOT_MEASURED, UNKNOWN, "none", UNKNOWN, step.scale, False,
            time.perf_counter() - self._clock, self.optimizer is None, None, settings, birth=step.explained,
        )  # fmt: skip

    # ---- the row

    def _first(self) -> MeasuredStep:
        give, self._undelivered = self._undelivered, None
        assert give is not None
        return give()

    def _finish(self, *, skipped: bool, change: Callable[[], Change] | None = None) -> None:
        """Deliver the measurements of the step that has just been made."""
        step = self._step
        gradient = step.gradient
        assert gradient is not None
        after = None
        if self._late_reduction is not None and change is None and not (skipped or step.is_passed_by):
            after = self._late_reduction.after_step(self.parameters, step)
        if change is None:
            gradient.layers[1:3] = UNKNOWN
            is_kept = not step.is_passed_by and (self.options.updates or self._optimizer() is None)
            change = self.parameters.measure_change_later(gradient.layers) if is_kept else _not_measured
        self.parameters.release()
        if step.birth is not None or loss_broke(step.losses):
            step.explain(step.birth, self.births.why_unknown)
        now = time.perf_counter()
        seconds, self._clock = now - self._clock, now
        self.clipping = step.clip
        optimizer = self._optimizer()
        loop = None if optimizer is None else self._on_step_of_loop(step, gradient, skipped=skipped)
        measured_step = MeasuredStep(
            self._rows, step.losses, gradient, NOT_MEASURED, UNKNOWN, step.clip[0],
            step.rate, step.scale, skipped, seconds, optimizer is None, loop,
            self._settings.read(main_of(optimizer), self.clipping, self.autocast.dtype, self.parameters.tensors),
            None if step.unused is None else self._shown.all_of(step.unused),
            bool(step.left_out) and not step.spike, after, step.spike, birth=step.explained,
        )  # fmt: skip
        if step.skipped_batches or self.births.suspects:
            self._report_skipped_batches(finite=not measured_step.went_nonfinite)
        self._rows += 1
        self._deliver_later(measured_step, step, change)
        self.births.clear()
        step.put_back()
        self._step = OpenStep()

    def _on_step_of_loop(self, step: OpenStep, gradient: Gradient, *, skipped: bool) -> Loop | None:
        """Return the calls of the loop that made a step, if they are known."""
        lost = self._training.on_step(step.micro_batches, gradient.norm, is_clipped=step.clip[0] != "none")
        return self._loop.on_step(
            step.micro_batches, scale=step.scale, skipped=skipped, lost=lost,
            around=step.scale != 1 and not self._in_scaler and step.still_carries_scale(gradient),
            left=self.parameters.marks() if self._loop.wants_marks else None,
            cleared=step.was_cleared(self.parameters, gradient),
        )  # fmt: skip

    # ---- delivery

    def _deliver_later(self, made: MeasuredStep, step: OpenStep, change: Callable[[], Change]) -> None:
        """Deliver the latest step once its figures are there: at once, unless a GPU is still computing them, or another
        optimizer may join it in its first step."""
        self.deliver()
        self._undelivered = lambda: step.complete(made, change())
        self.first_of = self.latest, step.micro_batches
        if self._rows == 1:
            waits = not made.went_nonfinite and self._optimizer() is not None and self._sink.may_join(self)
        else:
            waits = self.parameters.answers_later and not made.brings_news
        if not waits:
            self.deliver()

    def deliver(self) -> None:
        """Deliver the row of the latest step, if a GPU was still computing its figures. By the next backward pass it
        has finished, so that the script does not wait for them."""
        give, self._undelivered = self._undelivered, None
        if give is not None:
            made = give()
            made = made if self._shown.is_plain else made.with_layers(self._shown.together)
            self.births.has_told = self._sink.take(self, made)

    def share(self, ranks: int) -> dict[str, list[int]]:
        """Return this rank's shard of each layer, among `ranks`."""
        return share_of(self.parameters, ranks, None if self._shown.is_plain else self._shown.group)


def _without_change(gradient: Gradient | None, shown: ModuleLayers) -> Gradient:
    """Return what is known of a gradient, with the layers that are shown, if no update was made of it."""
    if gradient is None or not gradient.layers.size:
        layers = np.full((len(LAYER_METRICS), len(shown.layers)), UNKNOWN)
        return Gradient(UNKNOWN, 0, layers) if gradient is None else gradient._replace(layers=layers)
    gradient.layers[1:3] = UNKNOWN
    return gradient._replace(layers=shown.together(gradient.layers))


def _with_closure(arguments: Any, named: Any, closure: Callable[..., Any], after: Callable[[], Any]) -> Any:
    """Return the arguments of an optimizer's step with a closure that calls `after` at its end."""

    def extended(*given: Any, **others: Any) -> Any:
        loss = closure(*given, **others)
        after()
        return loss

    if "closure" in named:
        return arguments, {**named, "closure": extended}
    return (arguments[0], extended, *arguments[2:]), named


def found_inf(optimizer: Any) -> bool:
    """Return whether a fused optimizer has skipped its update by itself."""
    skips = getattr(optimizer, "found_inf", None)
    return skips is not None and bool(float(skips))


def _not_measured() -> Change:
    """A change that is not measured."""
    return NOT_MEASURED

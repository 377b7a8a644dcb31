"""The observations and measurements of the current step so far. Created for each step, and for each one that a script
restarts by discarding its gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from gradstudio.core.provenance import Provenance
from gradstudio.core.row import loss_broke
from gradstudio.core.unknown import UNKNOWN, is_known
from gradstudio.engine.torch_internals.clipping_hooks import clipping_is_observable
from gradstudio.watching.births.skipped_batches import SkippedBatch
from gradstudio.watching.births.step_births import NO_BIRTH, Birth, Births
from gradstudio.watching.hooks.loop_log import NEAR
from gradstudio.watching.hooks.torch_hooks import Roots
from gradstudio.watching.measuring.parameters import Change, Gradient, Parameters
from gradstudio.watching.steps.measured_step import MeasuredStep
from gradstudio.watching.steps.script_facts import loss_later, loss_of
from gradstudio.watching.steps.watch_options import Options


def unknown_norm() -> float:
    """A norm that is not measured."""
    return UNKNOWN


@dataclass(slots=True)
class OpenStep:
    """One step. `skipped_batches` are batches that the script has skipped since the previous step."""

    has_thrown: bool = False  # whether gradients were discarded since the previous step
    skipped_batches: list[SkippedBatch] = field(default_factory=list)
    was_as_seen: bool = False  # whether the parameters were unchanged at the first backward pass
    losses: float = 0.0
    micro_batches: int = 0
    scale: float = 1.0
    rate: float = UNKNOWN  # before the step; without an optimizer it stays so
    clip: tuple[str, float] = ("none", 0.0)
    explained: Birth = NO_BIRTH  # of the step's non-finite value
    birth: Provenance | None = None  # of the step's loss
    birth_before: Provenance | None = None  # before the latest backward pass
    gradient: Gradient | None = None
    read_figures: Callable[[], None] | None = None  # reads those of the latest backward pass, which a GPU is computing
    zero_marks: list[int] = field(default_factory=list)  # of gradients that the latest pass returned, if all are 0
    unused: set[int] | None = None  # indices of the parameters that no pass wrote a gradient for, if known
    weights_of_pass: list[int] = field(default_factory=list)  # marks at a non-finite backward pass
    used: Any = None  # the observer whose optimizer has stepped since the backward pass
    were_finite: bool = False  # whether discarded gradients were all finite, and the script has put others there
    # Gradients without an observed backward pass, before they were clipped, and their marks after that; none after a
    # clip by value, whose end is not observed.
    before_clip: Gradient | None = None
    marks_of_clip: list[int] | None = None
    norm_by_hand: float = UNKNOWN  # of gradients that were clipped before a manual update
    is_ready: bool = False  # whether the update begins
    is_empty: bool = False  # whether it is made without any gradient
    is_evaluated_again: bool = False  # whether it has made further backward passes, as LBFGS does
    is_passed_by: bool = False  # whether the step becomes no row, as far as known
    clipped_norm: Callable[[], float] = unknown_norm
    factor: float = 1.0  # by which a fused optimizer divides
    left_out: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # weights with their hidden gradients
    spike: str = ""  # the text about an update that is suppressed for its gradient norm
    is_put_back: bool = False  # whether they have them again

    @property
    def is_scaled(self) -> bool:
        """Whether its loss carries a scale."""
        return self.scale != 1

    @property
    def is_finite(self) -> bool:
        """Whether the loss and the measured gradients are finite."""
        return self.gradient is not None and not self.gradient.nonfinite and not loss_broke(self.losses)

    @property
    def is_broken(self) -> bool:
        """Whether the loss or the gradients so far are non-finite. An overflow of scaled gradients is no fault."""
        broken = self.gradient is not None and self.gradient.nonfinite > 0 and not self.is_scaled
        return broken or loss_broke(self.losses)

    @property
    def was_not_clipped(self) -> bool:
        """Whether no clipping of it was observed, although it would have been."""
        return self.clip[0] == "none" and clipping_is_observable()

    @property
    def is_observed(self) -> bool:
        """Whether anything was observed of it."""
        return bool(self.micro_batches or self.gradient is not None or self.skipped_batches)

    # ---- backward passes

    def measure_pass(
        self, roots: Roots, parameters: Parameters, births: Births, *, later: bool, may_pass_by: bool
    ) -> None:
        """Measure the result of a backward pass from these roots: now, or with `later` when `read` is called. Of a step
        that may pass by without a row, finite gradients are only glanced at."""
        # gradients of several passes may be sums with different scales
        self.scale = UNKNOWN if self.micro_batches and roots.scale != self.scale else roots.scale
        self.micro_batches += 1
        may_pass_by = may_pass_by and self.scale == 1
        if later:
            figures, loss = parameters.measure_gradient_later(self.scale), loss_later(roots)
            marks = parameters.marks(), parameters.weight_marks()

            def read() -> None:
                value = loss()
                self._add_loss(value)
                birth = births.look_at_losses(value)
                self.birth = self.birth or birth
                self._take_figures(figures(), parameters, births, marks, may_pass_by=may_pass_by)

            self.read_figures = read
            return
        self._add_loss(loss_of(roots))
        gradient = parameters.glance_at_gradient() if may_pass_by else parameters.measure_gradient(self.scale)
        if may_pass_by and (gradient.nonfinite or loss_broke(self.losses)):
            may_pass_by, gradient = False, parameters.measure_gradient(self.scale)
        self._take_figures(gradient, parameters, births, None, may_pass_by=may_pass_by)

    def _add_loss(self, loss: float) -> None:
        if self.losses == self.losses or is_known(self.losses):  # one call fewer for all but NaN
            self.losses += loss

    def _take_figures(
        self,
        gradient: Gradient,
        parameters: Parameters,
        births: Births,
        marks: tuple[list[int], list[int]] | None,
        *,
        may_pass_by: bool,
    ) -> None:
        """Record the measurements of the latest backward pass. `marks` are those of gradients and weights right after
        it, None for the present ones."""
        self.gradient = gradient
        self.is_passed_by = may_pass_by and self.is_finite
        self.zero_marks = [] if gradient.norm > 0 else parameters.marks() if marks is None else marks[0]
        if self.is_finite:
            births.all_finite()
        elif self.is_broken:
            self.weights_of_pass = parameters.weight_marks() if marks is None else marks[1]

    def can_wait(self, parameters: Parameters, options: Options) -> bool:
        """Return whether its figures may be read after its update: not if they may decide on that."""
        decides = options.acts_before_update or self.is_scaled
        return self.read_figures is not None and parameters.can_go_back and not decides

    def judge_when_read(self, births: Births, parameters: Parameters, judge: Callable[[OpenStep], None]) -> None:
        """Let `read` also judge the step, after its update: a GPU then goes on to that while the figures are computed.
        A search finds the weights from before the update."""
        read_figures = self.read_figures
        assert read_figures is not None

        def read() -> None:
            with births.searching_in(parameters.before_update):
                read_figures()
                judge(self)

        self.read_figures = read

    def read(self) -> None:
        """Wait for the figures of the latest backward pass, if a GPU is still computing them."""
        read, self.read_figures = self.read_figures, None
        if read is not None:
            read()

    def complete(self, made: MeasuredStep, change: Change) -> MeasuredStep:
        """Return its row with the change of the weights, and the norm after clipping."""
        if self.is_evaluated_again:  # the gradients are those of the latest pass
            change = change._replace(along_gradient=UNKNOWN)
        return made._replace(change=change, clipped_norm=self.clipped_norm() / self.factor)

    def has_given(self, marks: list[int]) -> bool:
        """Return whether the gradients are 0 because the previous backward pass of the same step returned zeros, rather
        than because the script has set them to 0."""
        return self.micro_batches > 0 and marks == self.zero_marks

    def was_cleared(self, parameters: Parameters, gradient: Gradient) -> bool:
        """Return whether the gradients of the backward pass were set to None or 0 before the step."""
        if not (self.micro_batches and gradient.norm > 0) or self.clip[0] != "none" or self.left_out:
            return False
        return parameters.have_no_gradients() if parameters.answers_later else not self.clipped_norm()

    def still_carries_scale(self, gradient: Gradient) -> bool:
        """Return whether the optimizer received a gradient that still carries the loss scale."""
        return self.scale > 1 / NEAR and (
            0 < NEAR * self.scale * gradient.norm <= self.clipped_norm() / self.factor < math.inf
        )

    # ---- clips

    def measure_unclipped(self, parameters: Parameters, kind: str) -> None:
        """Measure gradients without an observed backward pass, unless this is one more clip of the same step."""
        if self.before_clip is None or (kind == "norm" and parameters.marks() != self.marks_of_clip):
            self.before_clip = parameters.measure_gradient()
        self.marks_of_clip = None

    def take_without_pass(
        self, parameters: Parameters, clip: tuple[str, float], losses: float, micro_batches: int, scale: float
    ) -> None:
        """Begin the update of these parameters without a backward pass that was observed for them alone."""
        self.clip, self.gradient = clip, self._gradient_without_pass(parameters)
        if micro_batches:
            self.losses, self.micro_batches, self.scale = losses, micro_batches, scale
        else:
            self.losses, self.micro_batches = UNKNOWN, 0
        self.is_empty = parameters.have_no_gradients()

    def _gradient_without_pass(self, parameters: Parameters) -> Gradient:
        """Return gradients without an observed backward pass, as they were before clipping. Their norms are unknown if
        that was not observed, or if they have changed since."""
        if self.was_not_clipped:
            return parameters.measure_gradient()
        if self.before_clip is not None and self.marks_of_clip in (None, parameters.marks()):
            return self.before_clip
        return parameters.measure_gradient(UNKNOWN)

    def forget_replaced(self, parameters: Parameters) -> bool:
        """Forget measured gradients that the script has replaced by others computed from them. Return whether it
        has."""
        self.read()
        if self.gradient is None or parameters.gradients_are_current:
            return False
        self.were_finite = not (self.is_broken or self.skipped_batches)
        self.drop_discarded()
        self.gradient, self.losses, self.micro_batches = None, UNKNOWN, 0
        return True

    def drop_discarded(self) -> None:
        """Forget the batches whose gradients were discarded: none of them was skipped."""
        self.skipped_batches = [each for each in self.skipped_batches if not each.after_backward]

    # ---- non-finite values

    def explain(self, provenance: Provenance | None, unknown: str) -> None:
        """Record where the first non-finite value was born, or why that is unknown. Only the first call counts."""
        birth, why = self.explained
        self.explained = birth or provenance, why or unknown

    def restarted(self) -> OpenStep:
        """Return a new step in place of this one, as the script has started it over."""
        self.put_back()
        return OpenStep(self.has_thrown, self.skipped_batches)

    def leave_out(self, tensors: list[Tensor]) -> None:
        """Hide the gradients from an optimizer, so that it changes neither weights nor state."""
        self.is_put_back = False
        self.left_out = [(tensor, gradient) for tensor in tensors if (gradient := tensor.grad) is not None]
        for tensor, _ in self.left_out:
            tensor.grad = None

    def put_back(self) -> None:
        """Restore the hidden gradients of the weights."""
        for tensor, gradient in () if self.is_put_back else self.left_out:
            if tensor.grad is None:
                tensor.grad = gradient
        self.is_put_back = True

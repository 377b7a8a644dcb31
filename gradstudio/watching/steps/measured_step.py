"""The measurements of a step, as recorded while the script waits. Its row is created later, with those of other steps:
a row that is created alone, with caches full of the user's training, takes ten times as long."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gradstudio.core.columns import COLUMNS
from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.loop_calls import Loop
from gradstudio.core.row import Row, Settings, loss_broke
from gradstudio.core.unknown import UNKNOWN, is_known
from gradstudio.engine.gauges.every_step import coefficient, cosine
from gradstudio.watching.births.step_births import NO_BIRTH, Birth
from gradstudio.watching.measuring.parameters import Change, Gradient

ROUNDING = 1e-6  # relative difference of two norms that unscaling alone can cause


class MeasuredStep(NamedTuple):
    """One step of an optimizer, a manual update, or a pass after which the script ended. `clipped_norm` is the norm of
    the gradient that reached the optimizer; `clipping` is the observed kind of clipping."""

    step: int
    loss: float
    gradient: Gradient
    change: Change
    clipped_norm: float
    clipping: str
    rate: float
    scale: float
    skipped: bool
    seconds: float
    by_hand: bool
    loop: Loop | None
    settings: Settings
    unused: tuple[str, ...] | None = None  # parameters that received no gradient; None: not observed
    left_out: bool = False  # whether the watch suppressed the update on request
    after: Gradient | None = None  # as the optimizer's step has left it, if checked
    spike: str = ""  # the text about a spike for which the update was suppressed
    spread: float = UNKNOWN  # between the losses of several ranks
    birth: Birth = NO_BIRTH  # of its non-finite value
    blame: Finding | None = None  # of the ranks that produced it
    told: tuple[tuple[str, float], ...] = ()  # the script's own figures

    @property
    def is_finite(self) -> bool:
        """Whether loss, gradient and change are known and finite, so that the step neither went non-finite nor broke
        weights."""
        return math.isfinite(self.loss + self.change.norm) and not self.gradient.nonfinite

    @property
    def went_nonfinite(self) -> bool:
        """Whether a NaN or Inf reached the loss or the weights: `Row.went_nonfinite`, before there is a row."""
        return (self.gradient.nonfinite > 0 and not self.skipped) or loss_broke(self.loss)

    @property
    def spares_weights(self) -> bool:
        """Whether sound weights were protected from a non-finite loss, by a loss scaler or by the watch, or by a
        gradient that is finite all the same."""
        return self.left_out or (self.skipped and math.isfinite(self.change.weight_norm)) or self.is_of_loss_alone

    @property
    def is_of_loss_alone(self) -> bool:
        """Whether only the loss is non-finite: gradient and update were finite."""
        return not self.gradient.nonfinite and math.isfinite(self.gradient.norm + self.change.norm)

    @property
    def broke_weights(self) -> bool:
        """Whether the weights are NaN or Inf after the step; they may have been so before it."""
        return not math.isfinite(self.change.norm) and is_known(self.change.norm)

    @property
    def brings_news(self) -> bool:
        """Whether there is an event or a call to report for the step."""
        return self.skipped or self.loop is not None or self.went_nonfinite or bool(self.told)

    def with_layers(self, shown: Callable[[np.ndarray], np.ndarray]) -> MeasuredStep:
        """Return the step with figures of its layers as they are shown."""
        gradient, after = self.gradient, self.after
        layers = shown(gradient.layers)
        if layers is gradient.layers:
            return self
        after = None if after is None else after._replace(layers=shown(after.layers))
        return self._replace(gradient=gradient._replace(layers=layers), after=after)

    def figures(self) -> tuple[float, ...]:
        """Return the columns of the step, in the order of COLUMNS, as far as a script's step has them."""
        gradient, change, clipped = self.gradient, self.change, self.clipped_norm
        norm = gradient.norm
        if self.clipping == "none" and abs(clipped - norm) <= ROUNDING * norm:
            clipped = norm
        coef = coefficient(norm, clipped) if is_known(clipped) and is_known(norm) else UNKNOWN
        no_cosine = self.by_hand or not is_known(change.along_gradient)
        return (
            self.step, self.loss, norm, clipped, coef, self.rate, self.scale, self.skipped, gradient.nonfinite,
            change.update_ratio, change.weight_norm, UNKNOWN, self.seconds, UNKNOWN, UNKNOWN,
            1.0 if coef == 1 or self.clipping == "norm" else UNKNOWN,
            UNKNOWN if no_cosine else cosine(-change.along_gradient, clipped, change.norm),
            UNKNOWN, UNKNOWN, UNKNOWN, self.spread,
        )  # fmt: skip

    def row(self) -> Row:
        """Return the row of the step."""
        columns: Any = dict(zip(COLUMNS, self.figures(), strict=False))
        return Row(**columns, layers=self.gradient.layers, loop=self.loop, settings=self.settings, unused=self.unused)

"""What was measured of a step, as it is put down while the script waits. Its row is made later, with those of other
steps: a row that is made alone, with caches full of somebody's training, takes ten times as long."""

from __future__ import annotations

from typing import NamedTuple

from gradstudio.core.history import Row, Settings, loss_broke
from gradstudio.core.loop_calls import Loop
from gradstudio.core.unknown import UNKNOWN, is_known
from gradstudio.engine.gauges.every_step import coefficient, cosine
from gradstudio.watching.parameters import Change, Gradient

ROUNDING = 1e-6  # relative difference of two norms that unscaling alone can make


class MeasuredStep(NamedTuple):
    """One step of an optimizer, or an update by hand. `clipped_norm` is that of the gradient which reached the
    optimizer; `clipping` is the kind that was heard."""

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
    unused: tuple[str, ...] | None = None  # parameters that got no gradient; None: nobody looked

    @property
    def went_nonfinite(self) -> bool:
        """As of a Row."""
        return (self.gradient.nonfinite > 0 and not self.skipped) or loss_broke(self.loss)

    def row(self) -> Row:
        """Return the row of the step."""
        gradient, change, clipped, loss = self.gradient, self.change, self.clipped_norm, self.loss
        if self.clipping == "none" and abs(clipped - gradient.norm) <= ROUNDING * gradient.norm:
            clipped = gradient.norm
        coef = coefficient(gradient.norm, clipped) if is_known(clipped) else UNKNOWN
        return Row(
            step=self.step, loss=loss, grad_norm=gradient.norm, clipped_norm=clipped, clip_coef=coef, lr=self.rate,
            scale=self.scale, skipped=self.skipped, nonfinite=gradient.nonfinite, update_ratio=change.update_ratio,
            weight_norm=change.weight_norm, accuracy=UNKNOWN, step_seconds=self.seconds, layers=gradient.layers,
            loop=self.loop, settings=self.settings,
            clip_cosine=1.0 if coef == 1 or self.clipping == "norm" else UNKNOWN,
            update_cosine=UNKNOWN if self.by_hand else cosine(-change.along_gradient, clipped, change.norm),
            unused=self.unused,
        )  # fmt: skip

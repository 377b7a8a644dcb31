"""What to do about a spike of the gradient norm, if the knobs say so: its update is skipped, and the weights return to
those of some steps before."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from gradstudio.core.gradient_spikes import Spikes
from gradstudio.core.sections.loop_knobs import Clipping
from gradstudio.engine.step import optimizers

KEEP_EVERY = 8  # steps


@dataclass(eq=False)
class SpikePolicy:
    """`earlier` is empty, or weights, buffers and state of the optimizer, as they were before an update of the last
    steps. `is_spike`: the update of this step is skipped."""

    spikes: Spikes = field(default_factory=Spikes)
    earlier: dict[str, Any] = field(default_factory=dict)
    is_spike: bool = False

    def look(self, gradients: list[Tensor], knobs: Clipping) -> None:
        """Check the gradients of a step. The host waits for the device."""
        self.is_spike = False
        if knobs.on_spike != "none":
            norm = nn.utils.get_total_norm(gradients).item()
            self.is_spike = bool(self.spikes.look(norm, knobs.spike_deviations))

    def act(self, knobs: Clipping, step: int, weights: Tensor, buffers: list[Tensor], optimizer: Optimizer) -> None:
        """Store the state before the update of a step, or return to an earlier one."""
        if knobs.on_spike != "rewind":
            return
        if not self.is_spike and step % KEEP_EVERY == 0:
            self.earlier = {
                "weights": weights.clone(),
                "buffers": [each.clone() for each in buffers],
                "optimizer": optimizers.state(optimizer),
            }
        elif self.is_spike and self.earlier:
            weights.copy_(self.earlier["weights"])
            for tensor, value in zip(buffers, self.earlier["buffers"], strict=True):
                tensor.copy_(value)
            optimizers.restore(optimizer, self.earlier["optimizer"])

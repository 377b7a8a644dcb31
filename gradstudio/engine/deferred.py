"""Steps whose rows are read later: on a device that works beside the host, which would wait for it at every number that it looks at.

A step does to the weights what Trainer's own does, to the last bit, and measures on the device (device_gauges.py). Its figures are copied
to the host while training goes on, and read after a fixed number of further steps, never just when they are there: so a run comes out the
same however fast the device is.

No such device was at hand when this was written: it was tried on the CPU, with the same operations.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from gradstudio.core.experiment import Experiment, Mistakes
from gradstudio.core.history import Row, Settings
from gradstudio.core.loop_order import Loop
from gradstudio.engine import accumulation, gauges, gradients, precision
from gradstudio.engine.clipping import CLIPPING_ON_DEVICE
from gradstudio.engine.device_gauges import DeviceGauges
from gradstudio.engine.flat import Flat

if TYPE_CHECKING:
    from gradstudio.engine.trainer import Trainer

LAG = {"cuda": 4}  # how many steps later a row is read, by the type of the device; on others each is read as soon as its step is made


@dataclass(slots=True)
class _Made:
    """A step whose figures are on their way to the host."""

    step: int
    lr: float
    scale: float
    loop: Loop
    settings: Settings
    names: tuple[str, ...]
    figures: torch.Tensor
    there: Any  # a CUDA event, None where there is nothing to wait for
    seconds: float = 0.0


class Deferred:
    """The steps of one trainer that are made and not read. It keeps no hold of the trainer, so that a model is freed with it."""

    @classmethod
    def of(cls, flat: Flat, device: str) -> Deferred | None:
        """None where rows are read at once."""
        lag = LAG.get(torch.device(device).type)
        return None if lag is None else cls(flat, lag)

    def __init__(self, flat: Flat, lag: int) -> None:
        self._lag = lag
        self._gauges = DeviceGauges(flat.layout, flat.weights.device)
        self._made: deque[_Made] = deque()
        self._looked_at: Experiment | None = None
        self._flawless = False

    def advance(self, trainer: Trainer) -> list[Row]:
        """Make the trainer's next step, and give the rows that are due. A step that is looked at on the host comes with all before it."""
        if not self._possible(trainer):
            return [*self.settle(), trainer._step()]
        started = time.perf_counter()
        made = self._make(trainer)
        self._made.append(made)
        rows = [self._row(self._made.popleft())] if len(self._made) > self._lag else []
        made.seconds = time.perf_counter() - started
        return rows

    def settle(self) -> list[Row]:
        """The rows of all steps that were made. The time that the host waits for them is shared out among them."""
        if not self._made:
            return []
        started = time.perf_counter()
        made, self._made = self._made, deque()
        _wait(made[-1])
        waited = (time.perf_counter() - started) / len(made)
        return [self._row(each, waited) for each in made]

    def _possible(self, trainer: Trainer) -> bool:
        """Whether nothing in the next step is for the host to see. torch's own GradScaler looks at every step whether it overflowed."""
        if self._looked_at is not trainer.experiment:
            self._looked_at, self._flawless = trainer.experiment, trainer.experiment.mistakes == Mistakes()
        asked = trainer.compare_next or trainer.check_accumulation_next or trainer.sample_activations_next
        return self._flawless and not asked and not trainer.passes.watched and precision.scales(trainer.scaler) != "dynamic"

    def _make(self, trainer: Trainer) -> _Made:
        knobs, flat, measuring = trainer.experiment, trainer.flat, self._gauges
        trainer._calls = []
        batches = trainer._batches()
        trainer._zero_grad()
        passes = [trainer._pass(batch, len(batches)).clone() for batch in batches]
        trainer._unscale()
        measuring.measure_gradient(flat.gradients)
        if knobs.gradients.centralize:
            gradients.centralize(flat.grads)
        if knobs.gradients.noise_std > 0:
            gradients.add_noise(flat.grads, knobs.gradients.noise_std, trainer.gradient_noise)
        if knobs.gradients.centralize or knobs.gradients.noise_std > 0:
            measuring.measure("unclipped", flat.gradients)
        clipping = knobs.clipping.kind != "none"
        if clipping:
            trainer._calls.append("clip")
            CLIPPING_ON_DEVICE[knobs.clipping.kind](flat, knobs.clipping)
            measuring.measure("clipped", flat.gradients)
        lr, skipped = trainer._move()
        measuring.measure_change(trainer.before, flat.weights.data)
        names, figures = measuring.figures(passes)
        scaling = precision.scales(trainer.scaler)
        loop = Loop(tuple(trainer._calls), len(batches), clipping, scaling, skipped)
        made = _Made(trainer.step, lr, trainer.scaler.get_scale(), loop, trainer._settings_now(), names, *_sent(figures))
        trainer.step += 1
        return made

    def _row(self, made: _Made, waited: float = 0.0) -> Row:
        _wait(made)
        gradient, change, norms, passes = self._gauges.read(made.names, made.figures.numpy())
        loss, right = accumulation.means(passes.reshape(-1, 3).tolist())
        before = norms.get("unclipped", gradient.norm)
        after = norms.get("clipped", before)
        clip_coef = gauges.coefficient(before, after) if "clipped" in norms else 1.0
        return Row(
            step=made.step, loss=loss, grad_norm=gradient.norm, clipped_norm=after, clip_coef=clip_coef, lr=made.lr, scale=made.scale,
            skipped=made.loop.skipped, nonfinite=gradient.nonfinite, update_ratio=change.update_ratio,
            weight_norm=change.weight_norm, accuracy=right, step_seconds=made.seconds + waited, layers=gauges.by_layer(gradient, change),
            loop=made.loop, settings=made.settings,
        )  # fmt: skip


def _sent(figures: torch.Tensor) -> tuple[torch.Tensor, Any]:
    """Figures on their way to the host, and what tells that they are there."""
    if not figures.is_cuda:
        return figures, None
    on_host = torch.empty(figures.shape, dtype=figures.dtype, pin_memory=True).copy_(figures, non_blocking=True)
    there = torch.cuda.Event()
    there.record(torch.cuda.current_stream(figures.device))
    return on_host, there


def _wait(made: _Made) -> None:
    if made.there is not None:
        made.there.synchronize()

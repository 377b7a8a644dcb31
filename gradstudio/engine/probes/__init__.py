"""Gauges on demand, one per file, measured on a trainer between two steps, without a trace in it.
May use core and engine; the trainer and the step never use them."""

from __future__ import annotations

from typing import Any

import torch

from gradstudio.core.gauge_samples import (
    ClippedGradient,
    Exponents,
    Logits,
    NoiseScale,
    Overshoot,
    Sharpness,
    Unmeasurable,
    Value,
)
from gradstudio.engine.probes import clip_microscope, exponents, logits, noise_scale, overshoot, sharpness
from gradstudio.engine.probes.stand_in_model import Standin, batches_to_come, gauge_batch, recurrent
from gradstudio.engine.step import schedules
from gradstudio.engine.tasks.task import Batch
from gradstudio.engine.trainer import Trainer


class OnDemandGauges:
    """The gauges of one trainer, sample after sample, with the state that each of them carries over. A gauge that has
    no value raises Unmeasurable."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._standins: dict[tuple[torch.dtype, str], Standin] = {}
        self._batch: Any = None
        self._steepest: sharpness.Curvature | None = None  # from the last sample
        self._chance = torch.Generator().manual_seed(0)
        self._noise = noise_scale.Average()
        self._measures = {
            "exponents": self._exponents,
            "sharpness": self._sharpness,
            "noise_scale": self._noise_scale,
            "overshoot": self._overshoot,
            "clipping": self._clipping,
            "logits": self._logits,
        }

    def measure(self, name: str) -> Value:
        """Measure a gauge of gauge_samples.NAMES."""
        return self._measures[name]()

    def rest(self) -> None:
        """Release the memory while the gauges are not visible."""
        self._standins.clear()

    def _exponents(self) -> Exponents:
        standin = self._standin(torch.float32)
        standin.follow()
        gradients = [standin.gradient(batch) for batch in batches_to_come(self._trainer)]
        return exponents.measure(torch.stack(gradients).mean(0), self._trainer.scaler.get_scale())

    def _sharpness(self) -> Sharpness:
        trainer, knobs = self._trainer, self._trainer.experiment.optimizer
        on_host = recurrent(trainer.model) and trainer.device != "cpu"
        standin = self._standin(torch.float32, "cpu" if on_host else "")
        standin.follow()
        # AdamW's shrinks the weights separately from the gradient
        decay = 0.0 if knobs.kind == "adamw" else knobs.weight_decay
        gradient, curvature = standin.curvature(self._gauge_batch())
        divisor = sharpness.preconditioner(trainer, gradient + decay * standin.weights)
        product = sharpness.as_stepped(curvature, divisor, decay)
        like = standin.parameters[0].detach()
        entries = sum(parameter.numel() for parameter in standin.parameters)
        start = sharpness.begin(entries, like, self._steepest, self._chance)
        most, least = (sharpness.COLD, sharpness.LEAST) if self._steepest is None else (sharpness.WARM, 1)
        steepest = self._steepest = sharpness.largest(product, start, most, least)
        lr = knobs.lr * schedules.factor(trainer.experiment.schedule, trainer.taken)
        return Sharpness(
            steepest.value, sharpness.limit(knobs, lr), lr, divisor is not None, steepest.converged, steepest.products
        )

    def _noise_scale(self) -> NoiseScale:
        standin = self._standin(torch.float32)
        standin.follow()
        parts = noise_scale.parts(batches_to_come(self._trainer))
        squares, joined = noise_scale.squares([standin.gradient(part) for part in parts])
        knobs = self._trainer.experiment
        examples = len(parts[0].inputs) if isinstance(parts[0], Batch) else knobs.problem.batch_size
        return self._noise.add(squares, joined, examples, self._trainer.step)

    def _overshoot(self) -> Overshoot:
        device = self._trainer.device
        # Not every accelerator supports float64.
        standin = self._standin(torch.float64, "" if device.startswith("cuda") else "cpu")
        return overshoot.measure(self._trainer, standin, self._gauge_batch())

    def _clipping(self) -> ClippedGradient:
        standin = self._standin(torch.float32)
        standin.follow()
        batches = batches_to_come(self._trainer)
        gradients = [standin.gradient(batch) for batch in batches]
        passes = len(batches) * clip_microscope.seconds_of(lambda: standin.gradient(batches[0]), standin.device)
        return clip_microscope.measure(self._trainer, torch.stack(gradients).mean(0), passes)

    def _logits(self) -> Logits:
        standin = self._standin(torch.float32)
        standin.follow()
        return logits.measure(self._trainer, standin, self._gauge_batch())

    def _standin(self, dtype: torch.dtype, device: str = "") -> Standin:
        device = device or self._trainer.device
        if (dtype, device) not in self._standins:
            self._standins[dtype, device] = Standin(self._trainer, dtype, device)
        return self._standins[dtype, device]

    def _gauge_batch(self) -> Any:
        if self._batch is None or self._trainer.task.goal == "reward":  # a policy is judged by its own actions
            self._batch = gauge_batch(self._trainer)
        return self._batch


__all__ = ["OnDemandGauges", "Unmeasurable"]

"""Requests for the next step alone, besides training: they are measured before the passes, and leave no trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from gradstudio.core.row import ALIKE, Activations
from gradstudio.engine import memory
from gradstudio.engine.step.checks import DOES_NOT_FIT, NOBODY_JOINS, Checks
from gradstudio.engine.trainer_state import TrainerState

Compute = Callable[..., tuple[Tensor, Tensor]]  # of a micro-batch: the value that is differentiated, and its figures


def before_climb(trainer: TrainerState, batch: Any) -> Checks:
    """Measure what needs no gradient, at the start of the step."""
    requests = trainer.requests
    checks = Checks(trainer.step, ALIKE[trainer.experiment.precision.dtype])
    if requests.activations:
        sampled = trainer.subject.activations(trainer.model, batch, trainer.experiment)
        checks.activations = Activations(trainer.step, sampled)
    if requests.attention:
        checks.attention = trainer.subject.attention(trainer.model, batch, trainer.experiment)
    if requests.time_gradient:
        checks.time_gradient = trainer.subject.time_gradient(trainer.model, batch, trainer.experiment)
    if requests.test:
        checks.measure_test_set(trainer.test)
    return checks


def before_passes(trainer: TrainerState, batches: Sequence[Any], checks: Checks, compute: Compute) -> None:
    """Measure the requested gradients, at the weights of the step's own gradient."""
    requests, subject, parameters = trainer.requests, trainer.subject, trainer.flat.parameters

    def loss(*batch: Any, divisor: int = 1, shared: bool = False) -> Tensor:
        return compute(*batch, divisor=divisor, shared=shared)[0]

    if requests.compare and not memory.fits(trainer.batch_bytes * len(batches)):
        checks.joined_problem = DOES_NOT_FIT
    elif requests.compare and not subject.judged:
        checks.joined_problem = NOBODY_JOINS
    elif requests.compare:
        checks.measure_joined(trainer.model, parameters, batches, lambda batch: loss(*batch), trainer.scaler.get_scale)
    if requests.accumulation:
        count, shares = len(batches), subject.shares(batches)
        if shares is not None:
            batches = [(*batch, share) for batch, share in zip(batches, shares, strict=True)]
        checks.measure_summed(
            trainer.model, parameters, batches,
            lambda batch: loss(*batch, divisor=count, shared=shares is not None), subject.gradients,
        )  # fmt: skip

"""Sharpness: the largest eigenvalue of the Hessian, and its limit at the learning rate.

On a parabola of curvature s, gradient descent swings further at each step once s > 2/lr (Cohen 2021, arXiv 2103.00065);
with momentum b, torch's heavy ball, once s > (2 + 2b)/lr. Adam divides each entry of the gradient by P = sqrt(v_hat) +
eps, so the largest eigenvalue of P^-1 H counts, and its limit is (2 + 2 b1) / ((1 - b1) lr): 38/lr for b1 = 0.9 (Cohen
2022, arXiv 2207.14484). RMSprop does the same with its own P. P is that of the next step, including the gradient of
that step: an entry that had no gradient so far is divided by its first one, not by almost 0."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from gradstudio.core.gauge_samples import Unmeasurable
from gradstudio.core.sections.loop_knobs import Optimizer
from gradstudio.engine.step import optimizers
from gradstudio.engine.trainer import Trainer

# Relative error of the value: |H v - s v| <= CLOSE |s| bounds the distance to an eigenvalue.
CLOSE = 0.02
# Products with the Hessian, at most: the first time, and when starting from the last eigenvector.
COLD, WARM = 30, 12
# Products, at least, the first time: a start across the steepest direction finds the second steepest sooner.
LEAST = 6
SECONDS = 1.0  # at the most, since the run waits
# Share of randomness in a start vector; without it an eigenvector that has become the largest since would never be
# found.
STIR = 0.1

# Optimizers that normalize the size of an update, so no sharpness is known to be too large for them.
BOUNDED = ("lion", "muon", "stable_adamw", "schedule_free")

Product = Callable[[Tensor], Tensor]


class Curvature(NamedTuple):
    value: float
    vector: Tensor
    converged: bool
    products: int


def limit(knobs: Optimizer, lr: float) -> float:
    """Return the sharpness above which steps at that learning rate swing further and further."""
    if knobs.kind in BOUNDED:
        return math.inf
    if knobs.kind in ("adam", "adamw"):
        factor = (2 + 2 * knobs.beta1) / (1 - knobs.beta1)
    else:
        factor = 2 + 2 * knobs.momentum
    return factor / lr if lr > 0 else math.inf


def preconditioner(trainer: Trainer, gradient: Tensor) -> Tensor | None:
    """Return the optimizer's denominator for each entry of this gradient, over the factor on its learning rate, a
    vector of all parameters; None for SGD with a single rate."""
    knobs, flat = trainer.experiment.optimizer, trainer.flat
    group, state = trainer.optimizer.param_groups[0], optimizers.state(trainer.optimizer)
    factors = optimizers.rate_factors(flat, trainer.experiment)
    sizes = torch.tensor([weight.numel() for weight in flat.parameters])
    rates = torch.tensor(factors).repeat_interleave(sizes).to(gradient)
    if knobs.kind in ("sgd", *BOUNDED):
        return None if set(factors) == {1.0} else 1 / rates
    squares = state.get("square_avg" if knobs.kind == "rmsprop" else "exp_avg_sq", torch.zeros_like(flat.weights))
    before = torch.cat([part.flatten() for part in flat.layout.views(squares, flat.parameters)]).to(gradient)
    keep = group["alpha"] if knobs.kind == "rmsprop" else knobs.beta2
    mean = keep * before + (1 - keep) * gradient.square()
    if knobs.kind != "rmsprop":
        mean = mean / (1 - keep ** (float(state.get("step", 0)) + 1))
    return (mean.sqrt() + knobs.eps) / rates


def as_stepped(product: Product, divisor: Tensor | None, decay: float) -> Product:
    """Return the product with P^-1/2 (H + decay) P^-1/2: symmetric, with the eigenvalues of P^-1 (H + decay)."""
    root = None if divisor is None else divisor.rsqrt()

    def product_as_stepped(vector: Tensor) -> Tensor:
        inner = vector if root is None else root * vector
        outer = product(inner) + decay * inner
        return outer if root is None else root * outer

    return product_as_stepped


def largest(product: Product, start: Tensor, most: int, least: int = 1, seconds: float = SECONDS) -> Curvature:
    """Return the largest eigenvalue of a symmetric matrix, by Lanczos' method. It costs as much as power iteration and
    is closer after every product. Power iteration would find the eigenvalue that is largest in absolute value."""
    end = time.perf_counter() + seconds
    basis = [start / start.norm()]
    diagonal, beside = [], []
    while True:
        new = product(basis[-1])
        diagonal.append(torch.dot(basis[-1], new).item())
        if not math.isfinite(diagonal[-1]):
            raise Unmeasurable("The curvature is not finite here.")
        directions = torch.stack(basis)
        for _ in range(2):  # once more removes what rounding reintroduces
            new = new - directions.T @ (directions @ new)
        length = new.norm().item()
        matrix = torch.diag(torch.tensor(diagonal, dtype=torch.float64))
        for place, value in enumerate(beside):
            matrix[place, place + 1] = matrix[place + 1, place] = value
        values, vectors = torch.linalg.eigh(matrix)
        residual = length * abs(vectors[-1, -1].item())
        size = max(abs(values[0].item()), abs(values[-1].item()))
        exhausted = length <= 1e-6 * size  # nothing is left that is reachable from the start
        converged = exhausted or (residual <= CLOSE * abs(values[-1].item()) and len(basis) >= least)
        if converged or len(basis) == min(most, len(start)) or time.perf_counter() > end:
            return Curvature(
                values[-1].item(),
                directions.T @ vectors[:, -1].to(directions),
                converged or len(basis) == len(start),
                len(basis),
            )
        beside.append(length)
        basis.append(new / length)


def begin(length: int, like: Tensor, before: Curvature | None, source: torch.Generator) -> Tensor:
    """Return a start vector: a random one, or one near the last eigenvector; an unfinished search continues from its
    own."""
    if before is not None and not before.converged:
        return before.vector
    chance = torch.randn(length, generator=source).to(like)
    chance /= chance.norm()
    return chance if before is None else before.vector / before.vector.norm() + STIR * chance

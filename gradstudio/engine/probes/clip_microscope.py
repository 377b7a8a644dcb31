"""The clip microscope: the gradient of the next step before and after each kind of clipping, computed with the rules of
training, on a copy; and how long clipping takes there."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.utils import clip_grad_norm_

from gradstudio.core.gauge_samples import CLIPPED_BY, ClippedGradient, ClippingEffect, Unmeasurable
from gradstudio.engine.passes.flat import Flat
from gradstudio.engine.step.clipping import CLIPPING
from gradstudio.engine.trainer import Trainer

RANKS = (1, 2, 3, 5)  # of the listed entries, and the same times 10, 100, ...
TIMED = 5  # calls


def measure(trainer: Trainer, gradient: Tensor, passes: float) -> ClippedGradient:
    """Clip a true gradient, (entries,), in each way that the knobs describe; Unmeasurable if it is non-finite.
    `passes`: seconds that it took."""
    if not bool(torch.isfinite(gradient).all()):
        raise Unmeasurable("The gradient has entries that are NaN or Inf, so it has no direction.")
    named = [(name, Parameter(parameter.detach().clone())) for name, parameter in trainer.flat.named]
    flat = Flat(named)
    before = gradient.detach().to("cpu", torch.float64).numpy()
    ranks = shown_ranks(len(before))
    places = np.argsort(-np.abs(before), kind="stable")[[rank - 1 for rank in ranks]]
    cuts = {}
    for kind in CLIPPED_BY:
        _fill(flat, gradient)
        CLIPPING[kind](flat, trainer.experiment.clipping, {})
        after = torch.cat([grad.reshape(-1) for grad in flat.grads]).to("cpu", torch.float64).numpy()
        cuts[kind] = ClippingEffect(float(np.linalg.norm(after)), angle(before, after), tuple(after[places].tolist()))
    knobs = trainer.experiment.clipping
    _fill(flat, gradient)
    parameters = [parameter for _, parameter in named]
    seconds = seconds_of(lambda: clip_grad_norm_(parameters, knobs.max_norm), trainer.device)
    return ClippedGradient(
        size=len(before), norm=float(np.linalg.norm(before)), names=tuple(_name(named, int(at)) for at in places),
        ranks=ranks, entries=tuple(before[places].tolist()), cuts=cuts, max_norm=knobs.max_norm,
        clip_value=knobs.clip_value, agc_factor=knobs.agc_factor, seconds=seconds, passes=passes,
    )  # fmt: skip


def seconds_of(call: Callable[[], object], device: str) -> float:
    """Return the shortest time of a call, with all that it has a device do: other programs can only lengthen it."""
    times = []
    for _ in range(TIMED):
        _wait_for(device)
        start = time.perf_counter()
        call()
        _wait_for(device)
        times.append(time.perf_counter() - start)
    return min(times)


def shown_ranks(size: int) -> tuple[int, ...]:
    """Return the ranks of the listed entries among `size`: 1, 2, 3, 5, 10, 20, ... and the last one."""
    ranks = [rank * 10**power for power in range(len(str(size))) for rank in RANKS]
    return (*(rank for rank in ranks if rank < size), size)


def angle(before: np.ndarray, after: np.ndarray) -> float:
    """Return the angle between two vectors in degrees, exact even if it is small (Kahan 2006); NaN if one is 0."""
    lengths = float(np.linalg.norm(before)), float(np.linalg.norm(after))
    if 0 in lengths:
        return math.nan
    one, other = before / lengths[0], after / lengths[1]
    return math.degrees(2 * math.atan2(float(np.linalg.norm(one - other)), float(np.linalg.norm(one + other))))


def _wait_for(device: str) -> None:
    if device != "cpu":
        getattr(torch, torch.device(device).type).synchronize()


def _fill(flat: Flat, gradient: Tensor) -> None:
    start = 0
    for grad in flat.grads:
        grad.copy_(gradient[start : start + grad.numel()].view_as(grad))
        start += grad.numel()


def _name(named: list[tuple[str, Parameter]], place: int) -> str:
    """Return the parameter of an entry of the joined gradient, and its position in it."""
    for name, parameter in named:
        if place < parameter.numel():
            at = np.unravel_index(place, tuple(parameter.shape))
            return f"{name}[{', '.join(str(int(each)) for each in at)}]"
        place -= parameter.numel()
    raise IndexError(place)

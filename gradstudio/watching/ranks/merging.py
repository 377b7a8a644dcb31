"""One row from the figures of all ranks: the mean of their losses, and the norm of the gradient that all of them share.
A number that no single rank has and that they do not have together is unknown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradstudio.core.unknown import UNKNOWN, is_known
from gradstudio.engine.gauges.every_step import ratio
from gradstudio.watching.measuring.parameters import NOT_MEASURED, Change, Gradient
from gradstudio.watching.ranks.rank_letters import Figures
from gradstudio.watching.steps.measured_step import MeasuredStep

SAME = 1e-5  # largest relative difference of norms of the same gradient
OF_GRADIENT = [0, 3, 4, 5, 6, 7]  # rows of LAYER_METRICS


@dataclass(frozen=True)
class Shares:
    """The shards of each parameter by rank. `sizes`: entries on a rank, `counted`: 1 if they count, 0 if another rank
    has the same; both (ranks, layers). `parted`: whether a layer is sharded among ranks: (layers,)."""

    sizes: np.ndarray
    counted: np.ndarray
    parted: np.ndarray

    @property
    def any(self) -> bool:
        """Whether any parameter is sharded."""
        return bool(self.parted.any())


def merge(own: MeasuredStep, others: Mapping[int, Figures], shares: Shares) -> MeasuredStep:
    """Return the step of rank 0 with the figures of the `others`, which are the ranks that have reported it."""
    loss, spread = mean_loss([own.loss, *(each.loss for each in others.values())]) if others else (own.loss, UNKNOWN)
    measured_step = own._replace(loss=loss, spread=spread, after=None)
    if shares.any:
        return _of_parts(measured_step, own, others, shares)
    if are_alike([own.gradient.norm, *(each.norm for each in others.values())]):
        return measured_step
    after, nonfinite = own.after, max(own.gradient.nonfinite, *(each.nonfinite for each in others.values()))
    received = [own.clipped_norm, *(each.clipped for each in others.values())]
    if own.clipping == "none" and is_known(own.clipped_norm) and are_alike(received):  # reduced before the step
        layers = own.gradient.layers if after is None else after.layers
        layers[OF_GRADIENT] = UNKNOWN if after is None else layers[OF_GRADIENT]
        layers[1:3] = own.gradient.layers[1:3]
        return measured_step._replace(gradient=Gradient(own.clipped_norm, nonfinite, layers))
    left = [UNKNOWN if after is None else after.norm, *(each.after for each in others.values())]
    if after is not None and are_alike(left) and not all(map(_close, left, received)):
        # reduced within the step: an earlier clip was applied to each rank's own gradient
        plain = all(_close(each.clipped, each.norm) for each in others.values()) and own.clipping == "none"
        layers = after.layers
        layers[1:3] = own.gradient.layers[1:3]
        return measured_step._replace(
            gradient=after._replace(layers=layers), clipped_norm=after.norm if plain else UNKNOWN
        )
    return _local(measured_step, nonfinite)


def mean_loss(losses: Sequence[float]) -> tuple[float, float]:
    """Return the mean of the ranks' losses and the distance between the largest and the smallest; UNKNOWN if any loss
    is."""
    if not all(map(is_known, losses)):
        return UNKNOWN, UNKNOWN
    mean = sum(losses) / len(losses)
    return mean, max(losses) - min(losses) if math.isfinite(mean) else UNKNOWN


def are_alike(norms: Sequence[float]) -> bool:
    """Return whether these may be norms of the same gradient."""
    if not all(map(is_known, norms)):
        return not any(map(is_known, norms))
    if not all(map(math.isfinite, norms)):
        return not any(map(math.isfinite, norms))
    return max(norms) - min(norms) <= SAME * max(norms)


def _close(one: float, other: float) -> bool:
    return abs(one - other) <= SAME * abs(other)


def _local(measured_step: MeasuredStep, nonfinite: int) -> MeasuredStep:
    """Return a step for which every rank has a gradient of its own, and none that of all."""
    layers = measured_step.gradient.layers
    layers[OF_GRADIENT] = UNKNOWN
    change = measured_step.change._replace(along_gradient=UNKNOWN)
    return measured_step._replace(gradient=Gradient(UNKNOWN, nonfinite, layers), change=change, clipped_norm=UNKNOWN)


def _of_parts(
    measured_step: MeasuredStep, own: MeasuredStep, others: Mapping[int, Figures], shares: Shares
) -> MeasuredStep:
    """Return a step whose gradient and weights are sharded among the ranks: their squares are summed, and a shard that
    several have counts once."""
    ranks, count = [0, *others], len(shares.sizes)
    every = [own.gradient.layers, *(each.layers for each in others.values() if each.layers is not None)]
    if len(every) < count or (shares.sizes < 0).any():  # a shard that was not reported, or whose owner is unknown
        measured_step.gradient.layers[:] = UNKNOWN
        gradient = Gradient(UNKNOWN, own.gradient.nonfinite, measured_step.gradient.layers)
        return measured_step._replace(gradient=gradient, change=NOT_MEASURED, clipped_norm=UNKNOWN)
    values = np.stack(every).astype(np.float64)  # (ranks, metrics, layers)
    counted, sizes = shares.counted[ranks], shares.sizes[ranks]
    with np.errstate(all="ignore"):
        of_ranks = _squares(values)
        squares = np.einsum("rl,rml->ml", counted, of_ranks)
        entries = np.maximum((counted * sizes).sum(0), 1)
        layers = own.gradient.layers
        layers[0], layers[1] = np.sqrt(squares[0]), np.sqrt(squares[1])
        from_zero = (values[:, 1] == 0) & (values[:, 2] != 0)  # a ratio does not say how far these moved
        ratios = ratio(np.sqrt(squares[2]), layers[1])
        layers[2] = np.where(from_zero.any(0), np.where(layers[1] > 0, UNKNOWN, math.inf), ratios)
        moved = np.array([own.change.norm, *(each.moved for each in others.values())])
        squares[2, 0] += _squares_from_zero(from_zero, counted, moved**2 - of_ranks[:, 2].sum(1))
        layers[3] = values[:, 3].max(0)
        layers[4:] = np.einsum("rl,rml->ml", counted * sizes, values[:, 4:]) / entries
        broken = np.rint(np.nan_to_num(counted * sizes * values[:, 5])).sum()
        whole = np.sqrt(squares.sum(1))
    uniform = (counted == counted[:, :1]).all()
    figures = [(own.clipped_norm, own.change.along_gradient), *((each.clipped, each.along) for each in others.values())]
    clipped, along = np.array(figures)[counted[:, 0] > 0].T
    change = Change(float(whole[1]), float(whole[2]), float(along.sum()) if uniform and _all_known(along) else UNKNOWN)
    norm = float(whole[0]) if is_known(own.gradient.norm) else UNKNOWN
    after_clip = math.sqrt((clipped**2).sum()) if uniform else _in_proportion(own, norm)
    measured_step = measured_step._replace(
        gradient=Gradient(norm, int(broken), layers), change=change, clipped_norm=after_clip
    )
    if all(are_alike(list(values[:, 0, place])) for place in np.flatnonzero(~shares.parted)):
        return measured_step
    return _local(measured_step, int(broken))  # what is not sharded was not reduced either


def _squares(layers: Any) -> np.ndarray:
    """Return the squares of the norms of gradients, weights and their changes: (ranks, 3, layers)."""
    norms = layers[:, :3].copy()
    norms[:, 2] = np.where(norms[:, 1] > 0, norms[:, 2] * norms[:, 1], 0)
    return norms**2


def _squares_from_zero(from_zero: np.ndarray, counted: np.ndarray, rest: np.ndarray) -> float:
    """Return the squared change of the layers that were all 0, of which each rank knows only the sum."""
    total = 0.0
    for places, counts, square in zip(from_zero, counted, rest, strict=True):
        if (kinds := set(counts[places].tolist())) == {0, 1}:
            return UNKNOWN
        total += square if kinds == {1} else 0.0
    return total


def _all_known(values: np.ndarray) -> bool:
    return all(is_known(float(each)) for each in values)


def _in_proportion(own: MeasuredStep, norm: float) -> float:
    """Return the norm after clipping, if rank 0 was clipped by the same factor as all."""
    before = own.gradient.norm
    return norm * own.clipped_norm / before if before > 0 and is_known(own.clipped_norm) else UNKNOWN

"""The layers that a run shows: the tensors of a model or, if there are too many of them, its modules."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gradstudio.core.row import Layer


class ModuleLayers:
    """The grouping of tensors into at most `most` layers, in forward order. `layers` are shown."""

    def __init__(self, tensors: Sequence[Layer], most: int) -> None:
        self._sizes = np.array([layer.size for layer in tensors], float)
        self.is_plain = len(tensors) <= most
        if self.is_plain:  # each tensor is a layer
            self.layers, self._place = tuple(tensors), np.arange(len(tensors))
            return
        names = _shown_as([layer.name for layer in tensors], most)
        place = {name: index for index, name in enumerate(dict.fromkeys(names))}
        self._place = np.array([place[name] for name in names])
        self._whole = np.maximum(np.bincount(self._place, self._sizes), 1)
        largest: dict[str, Layer] = {}
        for name, layer in zip(names, tensors, strict=True):
            largest[name] = max(largest.get(name, layer), layer, key=lambda each: each.size)
        self.layers = tuple(Layer(name, largest[name].role, int(self._whole[place[name]])) for name in place)

    def group(self, values: Sequence[int]) -> list[list[int]]:
        """Return the values of the tensors of each layer."""
        groups: list[list[int]] = [[] for _ in self.layers]
        for place, value in zip(self._place, values, strict=True):
            groups[place].append(value)
        return groups

    def together(self, figures: np.ndarray) -> np.ndarray:
        """Return figures of each tensor, (metrics, tensors) in the order of LAYER_METRICS, combined for each layer."""
        if self.is_plain or not figures.size:
            return figures
        gradient, weight, ratio, largest, *shares = figures.astype(float)
        with np.errstate(all="ignore"):  # NaN, and weights of 0
            norms, weights, moves = (self._root(part) for part in (gradient, weight, ratio * weight))
            ratios = np.where(moves == 0, 0.0, moves / weights)
        most = np.full(len(self.layers), -np.inf)
        np.maximum.at(most, self._place, largest)  # which keeps NaN
        of_whole = [np.bincount(self._place, part * self._sizes) / self._whole for part in shares]
        return np.stack([norms, weights, ratios, most, *of_whole]).astype(np.float32)

    def _root(self, norms: np.ndarray) -> np.ndarray:
        return np.sqrt(np.bincount(self._place, norms**2))

    def all_of(self, tensors: set[int]) -> tuple[str, ...]:
        """Return the layers whose tensors are all among these indices."""
        of_each = np.bincount(self._place)
        counts = (
            np.bincount(self._place[sorted(tensors)], minlength=len(of_each)) if tensors else np.zeros(len(of_each))
        )
        return tuple(layer.name for layer, is_whole in zip(self.layers, counts == of_each, strict=True) if is_whole)


def _shown_as(names: Sequence[str], most: int) -> list[str]:
    """Return the layer of each tensor: its module, or one around that, or else a stretch of consecutive tensors."""
    parts = [name.split(".") for name in names]
    for depth in range(max(map(len, parts)) - 1, 0, -1):
        shown = [".".join(part[: max(1, min(depth, len(part) - 1))]) for part in parts]
        if len(set(shown)) <= most:
            return shown
    each = -(-len(names) // most)
    return [f"{names[first]} and {each - 1:,} more" for place in range(len(names)) for first in [place // each * each]]

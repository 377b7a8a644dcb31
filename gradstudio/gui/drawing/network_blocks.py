"""The content of the picture of a network: its blocks in forward order, and the gradient of each at one step."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from gradstudio.core.history import History
from gradstudio.core.provenance import Provenance
from gradstudio.gui.drawing.row_groups import Group, finer, groups

State = Literal["measured", "zero", "nonfinite", "unknown"]
SPAN = 4  # decades of the scale, at least
LEAST_TOP = 1  # decade at the upper end of that scale, at least: so that a flood is visible from step to step
LONGEST = 16  # decades of the scale along time, at most
PIECE = 512  # rows that are read at once to find the scale
MOST_ROWS = 8 * PIECE  # rows of a long run that are read for it
SMALLEST, LARGEST = -45, 39  # decades of a float32


class Flow(NamedTuple):
    """The gradient of a block at one step: its L2 norm, and the shares of its entries that are exactly 0 and that are
    NaN or Inf."""

    norm: float
    zeros: float
    nonfinite: float
    state: State


class Birth(NamedTuple):
    """The block in which the first NaN or Inf was born, -1 for the input and the number of blocks for the loss; and
    whether the forward pass had ended by then."""

    block: int
    backward: bool


def blocks_of(names: tuple[str, ...], most: int) -> list[Group]:
    """Return the modules of these layers in forward order, at most `most`. Many similar modules are grouped evenly if
    the module around them would be a single block."""
    stacked = any(re.search(r"_l[1-9]\d*$", name) for name in names)  # an nn.RNN of several layers
    named = tuple(re.sub(r"\.(\w+)_l(\d+)(_reverse)?$", r".l\2.\1", name) for name in names) if stacked else names
    blocks = groups(named, most) or [Group(name, row, row + 1) for row, name in enumerate(named)]
    if 2 * len(blocks) < most:
        blocks = finer(named, most) or blocks
    if len(blocks) <= most:
        return blocks
    ends = [round(each) for each in np.linspace(0, len(blocks), most + 1)]
    return [_join(blocks[first:stop]) for first, stop in pairwise(ends)]


def _join(parts: list[Group]) -> Group:
    first, last = parts[0], parts[-1]
    name = first.name if len(parts) == 1 else f"{first.name}–{last.name.rpartition('.')[2]}"
    return Group(name, first.first, last.stop)


def flows(history: History, blocks: list[Group], step: int) -> list[Flow]:
    """Return the gradient of each block at a recorded step."""
    norms, zeros, broken = (
        history.layer_metric(metric, step, step + 1)[0].astype(float)
        for metric in ("grad_norm", "zero_share", "nonfinite_share")
    )
    seen = np.isfinite(broken)  # the share of NaN and Inf is NaN if not measured
    sizes = np.array([layer.size for layer in history.layers], float)
    with np.errstate(over="ignore", invalid="ignore"):
        parts = np.where(seen, (np.square(norms), zeros * sizes, broken * sizes, sizes, sizes * 0 + 1), 0.0)
    parts[1, np.isnan(parts[1])] = 0.0
    sums = np.add.reduceat(parts[:, : blocks[-1].stop], [block.first for block in blocks], axis=1)
    return [_flow(*each) for each in sums.T.tolist()]


def _flow(squares: float, zeros: float, broken: float, size: float, measured: float) -> Flow:
    """Return the gradient of a block from sums over its `measured` layers: of squared norms, of entries that are 0, of
    those that are NaN or Inf, and of all."""
    if not measured:
        return Flow(math.nan, math.nan, math.nan, "unknown")
    norm, zero, share = math.sqrt(squares), zeros / max(size, 1.0), broken / max(size, 1.0)
    if share > 0 or not math.isfinite(norm):
        return Flow(norm, zero, share, "nonfinite")
    return Flow(norm, zero, share, "zero" if norm == 0 and zero == 1 else "measured")


def birth_of(birth: Provenance | None, step: int, blocks: list[Group], names: tuple[str, ...]) -> Birth | None:
    """Return the birthplace of the first NaN or Inf, if it was born up to this step and its place is known."""
    if birth is None or step < birth.step:
        return None
    backward = birth.phase in ("backward", "unscale", "update")
    if birth.phase == "data":
        return Birth(-1, backward)
    places = [row for row, name in enumerate(names) if name in birth.layers or _is_within(name, birth.module)]
    if birth.phase == "loss" or not places:
        return Birth(len(blocks), backward) if birth.phase in ("loss", "forward", "backward") else None
    row = max(places) if backward else min(places)  # the end that the pass reaches first
    return Birth(next(place for place, block in enumerate(blocks) if row < block.stop), backward)


def _is_within(layer: str, module: str) -> bool:
    return bool(module) and (layer == module or layer.startswith(f"{module}."))


def along_time(
    norms: tuple[float, ...], most: int, born: int | None = None
) -> tuple[list[int], list[Flow], tuple[int, int]]:
    """Return at most `most` of the time steps, counted from 0, the gradient with respect to the state after each, and
    the ends of a scale for them. The one in which a NaN or Inf was `born` is among them."""
    places = sorted({round(each) for each in np.linspace(0, len(norms) - 1, min(most, len(norms)))})
    if born is not None:
        places[min(range(len(places)), key=lambda at: abs(places[at] - born))] = born
    state_flows = [_state_flow(norms[place]) for place in places]
    logs = [math.log10(flow.norm) for flow in state_flows if flow.state == "measured"]
    top = max(math.ceil(max(logs, default=0.0)), LEAST_TOP)
    low = max(math.floor(min(logs, default=-SPAN)), top - LONGEST)
    return places, state_flows, (min(low, top - SPAN), top)


def _state_flow(norm: float) -> Flow:
    state: State = "zero" if norm == 0 else "measured" if math.isfinite(norm) else "nonfinite"
    return Flow(norm, float(norm == 0), 0.0, state)


class DecadeScale:
    """The decades of the gradient norms of all blocks of a run so far: the scale of the picture. It changes seldom, so
    that a thicker edge is a larger gradient."""

    def __init__(self) -> None:
        self._counts = np.zeros(LARGEST - SMALLEST + 1, np.int64)
        self._read = 0

    def take(self, history: History, blocks: list[Group], stop: int) -> None:
        """Read the norms of the blocks in the rows up to `stop`; of very many at once, an even sample."""
        pieces = range(self._read, stop, PIECE)
        keep = max(len(pieces) * PIECE // MOST_ROWS, 1)
        for first in pieces[::keep]:
            layers = history.layer_metric("grad_norm", first, min(first + PIECE, stop)).astype(float)
            with np.errstate(over="ignore", invalid="ignore"):
                squares = np.square(np.where(np.isnan(layers), 0.0, layers))  # even for an unmeasured layer
                norms = np.sqrt(np.add.reduceat(squares, [block.first for block in blocks], axis=1))
            norms = norms[np.isfinite(norms) & (norms > 0)]
            decades = np.minimum(np.floor(np.log10(norms)).astype(int), LARGEST)
            self._counts += np.bincount(decades - SMALLEST, minlength=len(self._counts))
        self._read = stop

    @property
    def levels(self) -> tuple[int, int]:
        """The ends of the scale as powers of ten. A norm far above nearly all others exceeds the scale."""
        total = self._counts.cumsum()
        if not total[-1]:
            return -SPAN, 0
        low = int(np.searchsorted(total, 0.005 * total[-1], "right"))
        usual = int(np.searchsorted(total, 0.98 * total[-1]))
        top = min(int(np.flatnonzero(self._counts)[-1]), usual + 2) + 1
        return min(low, top - SPAN) + SMALLEST, top + SMALLEST

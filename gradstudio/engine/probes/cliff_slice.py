"""The loss around the weights before a step, on that step's own batch: a slice along minus the gradient and, orthogonal
to it, along the update. It is measured on a separate trainer, by passes without a gradient."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gradstudio.core.cliff import ACROSS, DOWN, LEFT, UP, Cliff, Landing, Second
from gradstudio.core.gauge_samples import Unmeasurable
from gradstudio.core.knobs import KnobError
from gradstudio.core.row import Row
from gradstudio.engine.probes.stand_in_model import batches_to_come
from gradstudio.engine.snapshot import Snapshot
from gradstudio.engine.trainer import Trainer

DECADES = 45  # smallest view relative to the update
BISECTIONS = 3  # until the edge of the cliff is known to a third
ACROSS_LEAST = 1e-3  # share of the update orthogonal to the gradient below which it gives no direction
LANDINGS = 9  # values of max_norm that are tried
NOT_FINITE = "The {} of this step is not finite, so it has no direction."
STRIDES = ((4, 4), (2, 2), (2, 1), (1, 1))  # rows and columns from one measured cell to the next, coarse to fine
SECONDS = 1.5  # a finer grid that would end later is not started


def measure(trainer: Trainer, stopped: Callable[[], bool], check: Callable[[Row], None]) -> Iterator[Cliff]:
    """Yield the slice at the trainer's next step, coarse to fine, as fine as the time allows. `check` is called with
    the row of the replayed step. Unmeasurable if the loss or the gradient there is non-finite. The trainer is modified.
    """
    end = perf_counter() + SECONDS
    plane = _Plane(trainer, check)
    cliff = plane.outline()
    each = 0.0  # seconds that a cell took
    for strides in STRIDES:
        wanted = [place for place in _grid(*strides) if not cliff.known[place]]
        began = perf_counter()
        if strides != STRIDES[0] and began + len(wanted) * each > end:
            return
        for row, column in wanted:
            if stopped():
                return
            place = (column - LEFT) * cliff.cell, (row - DOWN) * cliff.cell
            cliff.losses[row, column] = plane.loss_at(*place)
            cliff.known[row, column] = True
        each = (perf_counter() - began) / len(wanted)
        yield replace(cliff, losses=cliff.losses.copy(), known=cliff.known.copy())
        if strides == STRIDES[0]:
            cliff = replace(cliff, landings=plane.landings(cliff.cell, stopped))
            yield replace(cliff, losses=cliff.losses.copy(), known=cliff.known.copy())


def _grid(rows: int, columns: int) -> list[tuple[int, int]]:
    """Return the cells of a grid that contains that of the weights."""
    return [(row, column) for row in range(DOWN % rows, UP, rows) for column in range(LEFT % columns, ACROSS, columns)]


class _Plane:
    """The two directions at one step, and the loss along them."""

    def __init__(self, trainer: Trainer, check: Callable[[Row], None]) -> None:
        self._trainer = trainer
        self._here = Snapshot.take(trainer)
        self._weights = trainer.flat.weights.data.clone()
        self._batches = batches_to_come(trainer)
        self._chance = trainer.subject.random_state()
        previous = self._displacement(trainer.before, back=True) if trainer.moved else None
        check(next(trainer.steps()))
        self._after = trainer.flat.weights.data.clone()
        update = self._displacement(self._after)
        gradient = self._gradient()
        self.unit, self.grad_norm = float(update.norm()), float(gradient.norm())
        if not math.isfinite(self.grad_norm):
            raise Unmeasurable(NOT_FINITE.format("gradient"))
        if not self.grad_norm:
            raise Unmeasurable("The gradient of this step is exactly 0, so it has no direction.")
        if not math.isfinite(self.unit):
            raise Unmeasurable(NOT_FINITE.format("update"))
        if not self.unit:
            raise Unmeasurable("This step made no update, so there is no direction to look along.")
        self._ahead = -gradient / self.grad_norm
        self.second: Second
        self.second, self._aside = self._across(update, previous)
        self.update = self._place(update)

    def outline(self) -> Cliff:
        """Return the slice without any cell: its width follows from where the loss along the update rises."""
        loss = self.loss_at(0.0, 0.0)
        if not math.isfinite(loss):
            raise Unmeasurable("The loss before this step is not finite: look at an earlier step.")
        x, y = self.update
        cell = self._edge(loss) * max(x / 8, -x / 3, abs(y) / 4, 0.06)
        losses = np.full((UP, ACROSS), math.nan)
        known = np.zeros((UP, ACROSS), bool)
        losses[DOWN, LEFT], known[DOWN, LEFT] = loss, True
        return Cliff(
            self._here.step, self.unit, cell, losses, known, loss, self.update, self._loss(self._after), self.grad_norm,
            self.second,
        )  # fmt: skip

    @torch.no_grad()
    def loss_at(self, x: float, y: float) -> float:
        """Return the loss at a point of the slice."""
        moved = self._weights.add(self._on_device(self._ahead * (x * self.unit) + self._aside * (y * self.unit)))
        return self._loss(moved)

    def landings(self, cell: float, stopped: Callable[[], bool]) -> tuple[Landing, ...]:
        """Return where steps with other values of max_norm end: each is made by the trainer, with its optimizer."""
        knobs = self._here.experiment.clipping
        widest = min(2 * ACROSS * cell, 1.0) * self.grad_norm
        tried = {float(each) for each in np.geomspace(0.02 * widest, widest, LANDINGS)}
        tried |= {self.grad_norm, min(knobs.max_norm, self.grad_norm)}
        landings: list[Landing] = []
        for max_norm in sorted(tried):
            if stopped():
                return ()
            try:
                self._step_with(kind="norm", max_norm=max_norm)
            except KnobError:
                return ()
            end = self._trainer.flat.weights.data.clone()
            update = self._displacement(end)
            landings.append(Landing(max_norm, *self._place(update), float(update.norm()) / self.unit, self._loss(end)))
        return tuple(landings)

    # ---- inside

    def _gradient(self) -> Tensor:
        """Return the gradient of the step before clipping."""
        if self._here.experiment.clipping.kind != "none":
            self._step_with(kind="none")
        return self._trainer.flat.gradients.to("cpu", torch.float64)

    def _step_with(self, **clipping: Any) -> None:
        """Repeat the step with other values of clipping."""
        self._here.restore(self._trainer)
        for name, value in clipping.items():
            self._trainer.change(f"clipping.{name}", value)
        next(self._trainer.steps())

    @torch.no_grad()
    def _loss(self, weights: Tensor) -> float:
        """Return the loss with these flat weights, as the step computes it: the mean of its micro-batches."""
        trainer, subject = self._trainer, self._trainer.subject
        trainer.flat.weights.data.copy_(weights)
        shares, total = subject.shares(self._batches), 0.0
        subject.set_random_state(self._chance)  # the same dropout in every cell
        with subject.own_random_state():
            for place, batch in enumerate(self._batches):
                loss = subject.compute(trainer.model, batch, self._here.experiment).loss
                total += float(loss) * (1.0 if shares is None else float(shares[place]))
        return total / len(self._batches) * self._here.experiment.loss.weight

    def _edge(self, loss: float) -> float:
        """Return the share of the update up to which the loss stays about the same: 1 if the update ends well."""

        def stays(share: float) -> bool:
            here = self.loss_at(share * self.update[0], share * self.update[1])
            return here <= loss + max(abs(loss), 1.0)

        share = next((10.0**-decade for decade in range(DECADES) if stays(10.0**-decade)), 10.0**-DECADES)
        if share == 1:
            return share
        low, high = share, 10 * share
        for _ in range(BISECTIONS):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if stays(middle) else (low, middle)
        return low

    def _across(self, update: Tensor, previous: Tensor | None) -> tuple[Second, Tensor]:
        """Return the second axis: the component of the update orthogonal to the gradient; if it has none, that of the
        previous update, or of a random direction."""
        generator = torch.Generator().manual_seed(0)
        random = torch.randn(len(update), generator=generator, dtype=torch.float64) * (update != 0)
        tried: tuple[tuple[Second, Tensor | None], ...] = (("update", update), ("previous update", previous))
        for name, direction in tried:
            if direction is None or not bool(torch.isfinite(direction).all()) or not float(direction.norm()):
                continue
            aside = direction - direction.dot(self._ahead) * self._ahead
            if float(aside.norm()) > ACROSS_LEAST * float(direction.norm()):
                return name, aside / aside.norm()
        aside = random - random.dot(self._ahead) * self._ahead
        return "random", aside / aside.norm().clamp_min(1e-300)

    def _place(self, update: Tensor) -> tuple[float, float]:
        return float(update.dot(self._ahead)) / self.unit, float(update.dot(self._aside)) / self.unit

    def _displacement(self, weights: Tensor, *, back: bool = False) -> Tensor:
        """Return the displacement from the weights before the step to others, or back from them: float64, on the
        CPU."""
        moved = weights.to("cpu", torch.float64) - self._weights.to("cpu", torch.float64)
        return -moved if back else moved

    def _on_device(self, vector: Tensor) -> Tensor:
        return vector.to(self._weights.dtype).to(self._weights.device)

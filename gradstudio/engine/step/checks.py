"""Compare with large batch, and the other checks that are requested for a step: the accumulated gradient against its
correct value, a sample of the activations, and the test set. Their measurements are made before the passes of the step,
and leave no trace in training."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from gradstudio.core.row import AccumulationError, Activations
from gradstudio.core.unknown import UNKNOWN
from gradstudio.engine.runtime import out_of_memory
from gradstudio.engine.step.accumulation import difference, gradient_of, join, summed_gradient
from gradstudio.engine.step.testing import NOT_TESTED, TestSetFigures

DOES_NOT_FIT = "not compared: the large batch does not fit into memory"
NOBODY_JOINS = "not compared: nobody knows how the batches of a studio file are joined"


@dataclass(slots=True)
class Checks:
    """The checks of one step and their results. `joined` is the gradient of the micro-batches as one batch; `summed` is
    the sum of their own gradients, times the loss scale."""

    step: int = 0
    tolerance: float = 0.0  # how far rounding can move the gradient away from `summed`
    joined: list[Tensor] | None = None
    summed: list[Tensor] | None = None
    joined_difference: float | None = None
    joined_problem: str = ""  # why there is no joined gradient
    accumulated: AccumulationError | None = None
    activations: Activations | None = None
    tested: TestSetFigures = NOT_TESTED
    attention: tuple[float, float] = (UNKNOWN, UNKNOWN)  # its largest logit, its least entropy
    time_gradient: float = UNKNOWN  # by the first time step's input / by the last's

    def measure_joined(
        self, model: nn.Module, parameters: Sequence[nn.Parameter], batches: Sequence[Any],
        loss: Callable[[Any], Tensor], scale: Callable[[], float],
    ) -> None:  # fmt: skip
        """Compute the gradient that accumulation should give: that of all micro-batches joined into one batch. This
        batch may not fit into memory, which is why there are micro-batches."""
        with _if_it_fits():
            self.joined = [grad / scale() for grad in gradient_of(model, parameters, join(batches), loss)]
        self.joined_problem = DOES_NOT_FIT if self.joined is None else ""

    def measure_summed(
        self, model: nn.Module, parameters: Sequence[nn.Parameter], batches: Sequence[Any],
        loss: Callable[[Any], Tensor],
        gradients: Callable[[Tensor, Sequence[nn.Parameter]], Sequence[Tensor | None]],
    ) -> None:  # fmt: skip
        """Compute the correct sum of the micro-batches, unless it does not fit into memory."""
        with _if_it_fits():
            self.summed = summed_gradient(model, parameters, batches, loss, gradients)

    def measure_test_set(self, test: Callable[[], TestSetFigures]) -> None:
        """Measure the test set, unless it does not fit into memory."""
        with _if_it_fits():
            self.tested = test()

    def compare_sum(self, grads: Sequence[Tensor]) -> None:
        """Compare the accumulated gradients, which still carry the loss scale, with the sum of the micro-batches' own
        gradients."""
        if self.summed is not None:
            self.accumulated = AccumulationError(self.step, difference(grads, self.summed), self.tolerance)

    def compare_joined(self, grads: Sequence[Tensor]) -> None:
        """Compare the unscaled gradient with that of the joined batch."""
        if self.joined is not None:
            self.joined_difference = difference(grads, self.joined)


@contextmanager
def _if_it_fits() -> Iterator[None]:
    """Skip what does not fit into memory."""
    try:
        yield
    except (RuntimeError, MemoryError) as fault:
        if not out_of_memory(fault):
            raise


NO_CHECKS = Checks()


@dataclass
class Requests:
    """The requests for the next step alone. `compare`: the gradient of the micro-batches joined into one;
    `accumulation`: the mean of their own gradients; `activations`: a sample of them; `test`: the test set; `attention`:
    how sharp it is."""

    compare: bool = False
    accumulation: bool = False
    activations: bool = False
    test: bool = False
    attention: bool = False
    time_gradient: bool = False

    @property
    def any(self) -> bool:
        return any(vars(self).values())

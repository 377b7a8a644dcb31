"""The test set between two steps: what is measured with it, and how often, so that this costs little."""

from __future__ import annotations

import math
from typing import NamedTuple

from gradstudio.core.history import LOOK_EVERY
from gradstudio.core.unknown import UNKNOWN

PASSES = 3  # forward passes that take the time of a forward and a backward pass
SHARE = 0.01  # of the steps' time, at most


class TestSetFigures(NamedTuple):
    """The accuracy on the test set, and the mean cosine between its examples as the output layer sees them."""

    accuracy: float
    head_cosine: float


NOT_TESTED = TestSetFigures(UNKNOWN, UNKNOWN)


def interval(tests: int, examples: int) -> int:
    """Return the number of steps between two measurements on a test set of `tests` examples, if a step learns from
    `examples`. It is counted in examples and never in seconds, so that a run has the same column wherever it is made. A
    test set costs 0.5 to 1 times this share, measured over the presets: small models pay more for each operation than
    for each example."""
    return LOOK_EVERY * math.ceil(tests / (PASSES * examples * SHARE * LOOK_EVERY))

"""A number that nobody measured is told from each that was, and stays so in every copy."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

from gradstudio.core.history import BLOCK, LAYER_METRICS, History
from gradstudio.core.row import Row
from gradstudio.core.unknown import UNKNOWN, is_known, known_mask

MEASURED = [0.0, -0.0, 1.0, math.inf, -math.inf, math.nan, -math.nan, math.inf - math.inf, 5e-324]


def row(step: int, **values: float) -> Row:
    return Row(step, *[1.0] * 12, layers=np.zeros((len(LAYER_METRICS), 0)), **values)


@pytest.mark.parametrize("value", MEASURED)
def test_every_measured_number_is_known(value: float) -> None:
    assert is_known(value) and known_mask(np.array([value])).all() and known_mask(np.float32([value])).all()


def test_what_nobody_measured_is_not() -> None:
    assert math.isnan(UNKNOWN) and not is_known(UNKNOWN)
    assert not known_mask(np.full((2, 3), UNKNOWN)).any() and known_mask(np.full(3, UNKNOWN)[:0]).all()


@pytest.mark.parametrize("copied", [
    lambda values: np.array(values.tolist()), lambda values: np.stack([values, values], 1)[:, 1],
    lambda values: values.astype(np.float32), lambda values: values.astype(np.float32).astype(float),
    lambda values: pickle.loads(pickle.dumps(values)), lambda values: np.concatenate([values[:1], values[1:]]),
])  # fmt: skip
def test_a_copy_keeps_it(copied) -> None:
    values = np.array([*MEASURED, UNKNOWN])
    assert known_mask(copied(values)).tolist() == [True] * len(MEASURED) + [False]


def test_a_history_names_the_steps_that_measured_a_column() -> None:
    history = History()
    tested = {0: 0.1, 40: math.nan, BLOCK: 0.5}
    for step in range(BLOCK + 2):
        history.append(row(step, test_accuracy=tested[step]) if step in tested else row(step))
    assert repr([each.tolist() for each in history.measurements("test_accuracy")]) == repr(
        [[*tested], [*tested.values()]]
    )
    assert history.measurements("test_accuracy", 1, BLOCK)[0].tolist() == [40]
    assert history.measurements("test_accuracy", BLOCK + 2)[0].tolist() == []
    assert history.measurements("loss", -5, 3)[0].tolist() == [0, 1, 2]
    for part in (history.until(BLOCK + 1), history.before(BLOCK + 1)):
        assert part.measurements("test_accuracy")[0].tolist() == [*tested]
    assert is_known(history.row(40)["test_accuracy"]) and not is_known(history.row(41)["test_accuracy"])

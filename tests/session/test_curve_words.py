"""A summary that is kept as rows arrive says what one of all rows says."""

from __future__ import annotations

import numpy as np
import pytest

from gradstudio.session.words.curve_words import CurveSummary, curve_words

CURVES = {
    "falls": [3.0, 2.0, 1.0, 1.0, 2.5],
    "level": [1.0, 1.0, 1.0],
    "breaks": [2.0, 1.0, float("nan"), float("inf"), 4.0],
    "never finite": [float("nan"), float("nan")],
    "one": [7.0],
    "finite once": [float("nan"), 5.0, float("nan")],
}


@pytest.mark.parametrize("name", list(CURVES))
def test_a_kept_summary_says_the_same(name: str) -> None:
    values = np.array(CURVES[name])
    steps = np.arange(len(values)) * 10
    for cut in range(len(values) + 1):
        summary = CurveSummary()
        summary.add(steps[:cut], values[:cut])
        summary.add(steps[cut:], values[cut:])
        assert summary.words("loss") == curve_words("loss", steps, values)


def test_the_words_of_a_curve_that_breaks() -> None:
    told = curve_words("loss", np.arange(5) * 10, np.array(CURVES["breaks"]))
    assert told == (
        "loss 4 at step 40, smallest 1 at step 10, largest 4 at step 40, 2 values are NaN or Inf, first at step 20."
    )

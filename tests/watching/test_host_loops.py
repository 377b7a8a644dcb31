"""The loops that measure on the host: numpy's first, jit ones once they pay, and the same figures from both."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from watching.conftest import columns, small_net, square_loss

from gradstudio.core import jit
from gradstudio.core.columns import COLUMNS
from gradstudio.engine.gauges import scattered
from gradstudio.watching.measuring import host_loops

STEPS = 6
OF_A_STEP = 4 * host_loops.OF_A_TENSOR  # seconds by which a step of the small net is counted, and a little less
NAMES = [name for name in COLUMNS if name != "step_seconds"]


def rows(watch: Callable, monkeypatch: pytest.MonkeyPatch, pays_after: float) -> np.ndarray:
    monkeypatch.setattr(host_loops, "PAYS_AFTER", pays_after)
    model = small_net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    one = watch(model, optimizer)
    for step in range(STEPS):
        optimizer.zero_grad()
        (square_loss(model) * (float("inf") if step == STEPS - 1 else 1)).backward()
        optimizer.step()
    found = np.array(columns(one, *NAMES))
    one.close()
    return found


def test_the_figures_are_the_same_to_rounding_and_a_change_of_loops_is_no_clip(
    watch: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast, plain, both = (rows(watch, monkeypatch, seconds) for seconds in (0.0, 1e9, 2.5 * OF_A_STEP))
    np.testing.assert_allclose(plain, fast, rtol=1e-12)
    np.testing.assert_array_equal(both[:, :3], plain[:, :3])
    np.testing.assert_array_equal(both[:, 3:], fast[:, 3:])
    norms, clipped = (both[NAMES.index(name)] for name in ("grad_norm", "clipped_norm"))
    np.testing.assert_array_equal(norms, clipped)


def test_without_a_compiler_and_with_one_that_cannot_be_loaded_numpy_goes_on(
    watch: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = rows(watch, monkeypatch, 1e9)
    monkeypatch.setattr(scattered.measure, "compile", lambda: 1 / 0)
    np.testing.assert_array_equal(rows(watch, monkeypatch, 0.0), plain)
    monkeypatch.setattr(jit, "available", lambda: False)
    np.testing.assert_array_equal(rows(watch, monkeypatch, 0.0), plain)

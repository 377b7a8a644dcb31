"""Clipping in the plane, against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest

from gradstudio.core.clip_plane import Limits, angle, clip

LIMITS = Limits(max_norm=1.0, clip_value=0.5, units=(1.0, 0.25))


@pytest.mark.parametrize(
    ("vector", "kind", "cut", "turned"),
    [
        ((3.0, 4.0), "norm", (0.6, 0.8), 0.0),
        ((0.3, 0.4), "norm", (0.3, 0.4), 0.0),
        ((100.0, 1.0), "value", (0.5, 0.5), 45.0 - math.degrees(math.atan(0.01))),
        ((-3.0, 0.1), "value", (-0.5, 0.1), math.degrees(math.atan(0.2) - math.atan(0.1 / 3))),
        ((2.0, 2.0), "agc", (1.0, 0.25), 45.0 - math.degrees(math.atan(0.25))),
        ((0.0, 0.0), "norm", (0.0, 0.0), math.nan),
    ],
)
def test_each_kind(vector: tuple, kind: str, cut: tuple, turned: float) -> None:
    after = clip(vector, kind, LIMITS)
    assert after == pytest.approx(cut)
    assert angle(vector, after) == pytest.approx(turned, abs=1e-9, nan_ok=True)

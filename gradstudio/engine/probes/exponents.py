"""Exponents: the sizes of the gradient's entries, by powers of two, and the share of them that fp16 would lose with and
without a loss scale.

The entries are those that the optimizer would get. On the way there fp16 rounds more: the outputs of every layer have a
gradient too."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from gradstudio.core.gauge_samples import FP16_LARGEST, FP16_NORMAL, FP16_SUBNORMAL, HIGHEST, LOWEST, Exponents, Shares


def measure(gradient: Tensor, scale: float) -> Exponents:
    """Measure a true gradient (entries,) under the loss scale that its step will have."""
    entries = np.abs(gradient.detach().to("cpu", torch.float32).numpy())
    finite = entries[np.isfinite(entries)]
    sizes = finite[finite > 0].astype(np.float64)
    exponents = np.frexp(sizes)[1] - 1  # frexp: size = m 2^e with m in [1/2, 1)
    best_scale = best(exponents)
    return Exponents(
        counts=np.bincount(exponents - LOWEST, minlength=HIGHEST - LOWEST + 1), zeros=len(finite) - len(sizes),
        nonfinite=len(entries) - len(finite), plain=shares(sizes), scale=scale, scaled=shares(sizes * scale),
        best_scale=best_scale, best=shares(sizes * best_scale),
    )  # fmt: skip


def shares(sizes: np.ndarray) -> Shares:
    """Return the shares of nonzero absolute values that fp16 cannot represent. It has no number below 2^-24; a loss
    scale lifts entries above it (Micikevicius 2018, "Mixed precision training", section 3.2)."""
    if not len(sizes):
        return Shares(0.0, 0.0, 0.0)
    lost, small = (sizes < 2.0**FP16_SUBNORMAL).mean(), (sizes < 2.0**FP16_NORMAL).mean()
    return Shares(float(lost), float(small - lost), float((sizes > FP16_LARGEST).mean()))


def best(exponents: np.ndarray) -> float:
    """Return the smallest power of two that loses the fewest entries and lets none overflow: one overflow costs the
    whole step."""
    if not len(exponents):
        return 1.0
    highest = 14 - int(exponents.max())  # 2^15 times up to 2 may be above 65504
    wanted = FP16_SUBNORMAL - int(exponents.min())  # lifts every entry
    return math.ldexp(1.0, min(highest, max(wanted, 0)) if highest >= 0 else highest)

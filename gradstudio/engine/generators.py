"""Random numbers: one generator for each kind of draw, so that none affects another."""

from __future__ import annotations

import torch

# Added to run.seed. The CPU's generator uses 32 bits of a seed, so the offsets must stay small.
OFFSETS = {
    "order": 0,
    "noise": 1_000_003,
    "outliers": 2_000_003,
    "gradient_noise": 3_000_017,
    "test_noise": 4_000_037,
    "test": 5_000_011,
    "label_noise": 6_000_011,
    "rounding": 7_000_003,
}


def generator(seed: int, purpose: str) -> torch.Generator:
    """Return a generator on the CPU, whatever the device, so that a seed draws the same numbers everywhere."""
    return torch.Generator().manual_seed(seed + OFFSETS[purpose])

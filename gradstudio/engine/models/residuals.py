"""How a residual sum weighs its two parts, and how the weights of its branch are drawn, by its name in
model.residual_scaling."""

from __future__ import annotations

import re

import torch
from torch import Tensor, nn

from gradstudio.core.sections.task_knobs import LAYERED, Model

# The factor on a branch at step 0, if it is a parameter.
FACTORS = {"rezero": 0.0, "fixup": 1.0}
# Weights that multiply the content of a branch; queries and keys only select it.
_OF_A_BRANCH = re.compile(r"(hidden\.[1-9]\d*|value|output|expand|contract)\.weight$|weight_ih_l[1-9]\d*$")
_LAST = re.compile(r"\b(output|contract|head)\.(weight|bias)$")  # of a branch of two layers, and of the network


class Residual(nn.Module):
    """The sum of the input of a branch and its output, both of the same shape.

    rezero: inputs + factor x branch, with a learned factor that is 0 at first (Bachlechner 2020, equation 2). fixup:
    the same with a factor of 1 at first (Zhang 2019, the multiplier of rule 3). deepnorm: alpha x inputs + branch with
    alpha = sums^(1/4) (Wang 2022: (2N)^(1/4) for N layers of two sums). none: inputs + branch."""

    def __init__(self, knobs: Model) -> None:
        super().__init__()
        kind = knobs.residual_scaling
        self.factor = nn.Parameter(torch.full((1,), FACTORS[kind])) if kind in FACTORS else None
        self.alpha = sums(knobs) ** 0.25 if kind == "deepnorm" else 1.0

    def forward(self, inputs: Tensor, branch: Tensor) -> Tensor:
        if self.factor is not None:
            return inputs + self.factor * branch
        return (inputs if self.alpha == 1 else self.alpha * inputs) + branch


def sums(knobs: Model) -> int:
    """Return the number of residual sums between input and output; 0 for a network without."""
    if knobs.kind == "transformer":
        return 2 * knobs.depth
    return knobs.depth - 1 if knobs.residual and knobs.kind in LAYERED else 0


@torch.no_grad()
def scale_branches(named: list[tuple[str, nn.Parameter]], knobs: Model) -> None:
    """Scale the weights of the branches, after they were drawn. deepnorm: by beta = (4 x sums)^(-1/4), which is
    (8N)^(-1/4) for N layers of two sums (Wang 2022). fixup: the first layer of a branch of two by 1 / sqrt(sums); the
    last one and the head become 0 (Zhang 2019, rules 1 and 2)."""
    count = sums(knobs)
    if not count or knobs.residual_scaling not in ("deepnorm", "fixup"):
        return
    fixup = knobs.residual_scaling == "fixup"
    for name, parameter in named:
        if fixup and _LAST.search(name):
            parameter.fill_(knobs.initial_bias if name.endswith("bias") and "head" not in name else 0.0)
        elif _OF_A_BRANCH.search(name):
            parameter.mul_(count**-0.5 if fixup else (4 * count) ** -0.25)

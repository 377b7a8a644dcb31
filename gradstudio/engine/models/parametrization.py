"""muP, the maximal update parametrization (Yang 2021, Tensor programs V, table 3): how the learning rate of each
weight, the head and the attention depend on the width, so that a rate found at one width is right at every other.

Everything is relative to model.base_width, at which nothing differs from the standard. It assumes an init whose
variance is 1 / n_in up to a factor, as all but zeros and normal have. `ratio` is base_width / width."""

from __future__ import annotations

import re

import torch
from torch import Tensor, nn

from gradstudio.core.sections.task_knobs import WITH_MUP, Model

_READS_INPUTS = re.compile(r"(^hidden\.0|^embedding)\.weight$|weight_ih_l0$")  # their inputs do not grow with the width


def ratio(knobs: Model) -> float:
    """Return base_width / width under muP, otherwise 1. The two players of a gan have the standard parametrization."""
    return knobs.base_width / knobs.width if knobs.parametrization == "mup" and knobs.kind in WITH_MUP else 1.0


def rate_factor(name: str, weight: Tensor, knobs: Model, optimizer: str) -> float:
    """Return the factor on the learning rate of a weight: from table 3, the rows SGD LR and Adam LR, over their values
    at the base width; RMSprop also divides by the size of the gradient, and counts as Adam."""
    share = ratio(knobs)
    if weight.ndim > 1 and name.startswith("head."):
        return share
    of_width = weight.ndim > 1 and not _READS_INPUTS.search(name)
    if optimizer == "sgd":
        return 1.0 if of_width else 1 / share
    return share if of_width else 1.0


@torch.no_grad()
def shrink_head(named: list[tuple[str, nn.Parameter]], knobs: Model) -> None:
    """Reduce the variance of the head's weights from 1 / n_in to 1 / n_in^2 (table 3), up to the base width."""
    if ratio(knobs) != 1:
        for name, parameter in named:
            if name == "head.weight":
                parameter.mul_(ratio(knobs) ** 0.5)

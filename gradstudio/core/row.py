"""What is measured at one step: its row, and what stands in a row."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from gradstudio.core.loop_calls import Loop
from gradstudio.core.unknown import UNKNOWN, is_known


class Layer(NamedTuple):
    """One parameter tensor: its name in the model, its kind, its number of entries. In forward order."""

    name: str
    role: Literal["weight", "recurrent", "embedding", "bias", "norm", "factor"]
    size: int

    @property
    def is_weight(self) -> bool:
        """True for tensors that multiply a layer's input, or that are a lookup table for it."""
        return self.role in ("weight", "recurrent", "embedding")


# Relative difference up to which two gradients count as equal: ten times the measured rounding error.
ALIKE = {"fp32": 1e-3, "fp16": 1e-2, "bf16": 5e-2}


class Settings(NamedTuple):
    """How a step was configured to treat its gradient. `limit` is the limit of the clipping in use, 0 without clipping.
    Rows of older versions do not include their optimizer, which is "" then, nor their weight decay, which is None."""

    clipping: str
    limit: float
    dtype: str
    optimizer: str = ""
    momentum: float = 0.0  # for SGD and RMSprop
    beta1: float = 0.0  # for Adam and AdamW
    beta2: float = 0.0  # for both, and alpha of RMSprop; 0 in the RMSprop rows of older versions
    weight_decay: float | None = None
    rho: float = 0.0  # for sharpness-aware minimization, 0 without it


class AccumulationError(NamedTuple):
    """The relative difference between the accumulated gradient and the mean of the micro-batches' gradients, weighted
    by their examples, and the difference that rounding can cause."""

    step: int
    difference: float
    tolerance: float


class Activation(NamedTuple):
    """The outputs of one layer's activation on a batch. `layer` is the weight in front of it; `saturated` is the share
    of outputs whose slope is almost 0, `dead` the share of units that are 0 for the whole batch."""

    layer: str
    mean: float
    std: float
    saturated: float
    dead: float


class Activations(NamedTuple):
    """The activations of every layer at a step, in forward order."""

    step: int
    layers: tuple[Activation, ...]


class Logged(NamedTuple):
    """A number that a script or a log reports, such as a validation loss, before a step."""

    step: int
    name: str
    value: float


@dataclass(frozen=True, slots=True)
class Row:
    """The measurements of one optimizer step. `layers`: (metrics, layers), in the order of LAYER_METRICS."""

    step: int
    loss: float
    grad_norm: float
    clipped_norm: float
    clip_coef: float
    lr: float
    scale: float
    skipped: bool
    nonfinite: int
    update_ratio: float
    weight_norm: float
    accuracy: float
    step_seconds: float
    layers: np.ndarray
    loop: Loop | None = None
    joined_difference: float | None = None  # only at steps that requested it: see engine/step/checks.py
    joined_problem: str = ""  # why it could not be measured
    settings: Settings | None = None
    accumulated: AccumulationError | None = None  # this and the next only at steps that requested them
    activations: Activations | None = None
    test_accuracy: float = UNKNOWN
    head_cosine: float = UNKNOWN
    clip_cosine: float = UNKNOWN
    update_cosine: float = UNKNOWN
    all_reduces: float = UNKNOWN
    reduced_bytes: float = UNKNOWN
    rank_drift: float = UNKNOWN
    loss_spread: float = UNKNOWN
    attention_logit: float = UNKNOWN
    attention_entropy: float = UNKNOWN
    time_gradient: float = UNKNOWN
    policy_ratio: float = UNKNOWN
    policy_kl: float = UNKNOWN
    policy_entropy: float = UNKNOWN
    policy_reward: float = UNKNOWN
    ranks: np.ndarray | None = None  # (ranks, RANK_COLUMNS)
    unused: tuple[str, ...] | None = None  # layers that received no gradient in any backward pass; None: not observed
    logged: tuple[Logged, ...] = ()
    harmless: bool = False  # a non-finite loss after which training was seen to continue with sound weights

    @property
    def went_nonfinite(self) -> bool:
        """True if a NaN or Inf reached the loss or the weights. An overflow that the scaler skipped did not."""
        return not self.harmless and (loss_broke(self.loss) or (self.nonfinite > 0 and self.skipped != 1))


def loss_broke(loss: float) -> bool:
    """Return whether a loss was measured as NaN or Inf. An unmeasured loss is UNKNOWN, which does not count."""
    return not math.isfinite(loss) and is_known(loss)

"""Losses, by their name in loss.kind, and the share of correct answers.

Outputs come as the model returns them, (batch, outputs) or (batch, answers, outputs), in fp32 whatever the forward pass
was in. The naive losses are typical hand-written forms: each is right on paper, and produces a NaN or Inf where the
stable form of torch would not. They add `eps` against that; 0 adds nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from gradstudio.core.sections.task_knobs import Loss as Knobs
from gradstudio.engine.step import policy_loss
from gradstudio.engine.tasks.acting import SUCCESS
from gradstudio.engine.tasks.ring import ring_centers
from gradstudio.engine.tasks.task import Goal

CLOSE = 0.04  # an answer within this distance counts as correct (Hochreiter and Schmidhuber 1997)
MARGIN = 1.0  # by which an example is to be nearer to its own class than to others
ON_MODE = 0.3  # a point within this distance of a cluster belongs to it; clusters are 1.5 apart


def cross_entropy(outputs: Tensor, labels: Tensor, eps: float) -> Tensor:
    """Return torch's cross-entropy, which is stable."""
    return F.cross_entropy(outputs.flatten(0, -2), labels.flatten())


def squared_error(outputs: Tensor, values: Tensor, eps: float) -> Tensor:
    """Return the mean squared error."""
    return F.mse_loss(outputs, values)


def naive_log(outputs: Tensor, labels: Tensor, eps: float) -> Tensor:
    """Return the binary cross-entropy of a sigmoid for each class, written out. If the sigmoid is exactly 0 or 1, log 0
    is multiplied by 0."""
    p, t = torch.sigmoid(outputs), one_hot(labels, outputs)
    return -(t * torch.log(p + eps) + (1 - t) * torch.log(1 - p + eps)).mean()


def naive_division(outputs: Tensor, targets: Tensor, eps: float) -> Tensor:
    """Return the squared error relative to the prediction, which a relu can make 0. It needs an eps of about 0.1: the
    error is divided by its square."""
    p, t = torch.relu(outputs), one_hot(targets, outputs)
    return (((t - p) / (p + eps)) ** 2).mean()


def naive_sqrt(outputs: Tensor, labels: Tensor, eps: float) -> Tensor:
    """Return the triplet loss with the hardest examples of a batch (Hermans 2017): the farthest example of the same
    class should be closer, by MARGIN, than the nearest one of another class. An example that is alone in its class is
    its own farthest, at distance 0, where the root has no slope: the loss is finite and its gradient NaN."""
    squares, alike = pairs(outputs, labels)
    farthest = torch.sqrt((squares * alike).amax(1) + eps)
    nearest = torch.sqrt(squares.masked_fill(alike, math.inf).amin(1) + eps)
    return torch.relu(MARGIN + farthest - nearest).mean()


def naive_exp(outputs: Tensor, labels: Tensor, eps: float) -> Tensor:
    """Return the cross-entropy of a softmax, written out. exp overflows above 88, which eps does not prevent; it helps
    if a probability is 0."""
    e = torch.exp(outputs)
    p = e / (e.sum(-1, keepdim=True) + eps)
    return -(one_hot(labels, outputs) * torch.log(p + eps)).sum(-1).mean()


def naive_variance(outputs: Tensor, targets: Tensor, eps: float) -> Tensor:
    """Return the Gaussian negative log-likelihood with a mean and a variance for each value. The variance is 1 plus an
    output, so it starts near 1 and nothing keeps it above 0. eps is its minimum, as in torch.nn.GaussianNLLLoss; below
    it the slope with respect to the variance is 0, if torch's is that at eps."""
    mean, output = outputs.chunk(2, -1)
    variance = 1 + output
    if eps > 0:
        variance = variance.clamp(min=eps)
    return 0.5 * (torch.log(variance) + (one_hot(targets, mean) - mean) ** 2 / variance).mean()


def adversarial(outputs: Tensor, unused: Tensor, eps: float) -> Tensor:
    """Return the loss of a least-squares GAN (Mao 2017), for both players at once: the discriminator's targets are 1
    for real points and 0 for drawn ones, and the generator's target is 1 for its own. Outputs are those of models.gan:
    the three scores, then the drawn point."""
    real, drawn, fooled = outputs[:, 0], outputs[:, 1], outputs[:, 2]
    return ((real - 1) ** 2).mean() + (drawn**2).mean() + ((fooled - 1) ** 2).mean()


def squared_log_z(outputs: Tensor) -> Tensor:
    """Return the mean over all answers of log(sum of exp(outputs))^2, the z-loss of PaLM (Chowdhery 2022)."""
    return torch.logsumexp(outputs, -1).square().mean()


def one_hot(targets: Tensor, like: Tensor) -> Tensor:
    """Return classes as rows of `like`'s width with a 1 at the class; values are returned unchanged."""
    if targets.is_floating_point():
        return targets
    return (targets.unsqueeze(-1) == torch.arange(like.shape[-1], device=targets.device)).to(like.dtype)


def pairs(outputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return for every two examples the square of their distance and whether they are of the same class, both (batch,
    batch)."""
    return (outputs.unsqueeze(1) - outputs).square().sum(2), labels.unsqueeze(1) == labels


class Loss(NamedTuple):
    """A loss: `value` (outputs, targets, eps) is minimized, `accuracy` (outputs, targets) is the share of correct
    answers, `outputs` is the number of outputs that it needs for each value that is learned."""

    value: Callable[[Tensor, Tensor, float], Tensor]
    accuracy: Callable[[Tensor, Tensor], Tensor]
    outputs: int = 1


def right_class(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return the share of examples whose largest output is that of their class."""
    return (outputs.argmax(-1) == labels).float().mean()


def close_value(outputs: Tensor, values: Tensor) -> Tensor:
    """Return the share of values that the outputs come close to."""
    return ((outputs - values).abs() < CLOSE).float().mean()


def right_neighbour(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return the share of examples whose nearest other example is of their class."""
    squares, _ = pairs(outputs, labels)
    return (labels[squares.fill_diagonal_(math.inf).argmin(1)] == labels).float().mean()


def modes_hit(outputs: Tensor, unused: Tensor) -> Tensor:
    """Return the share of the ring's clusters that have a drawn point nearby."""
    return (torch.cdist(outputs[:, 3:], ring_centers(outputs.device).to(outputs)) < ON_MODE).any(0).float().mean()


def success(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the share of answers that are right, or of the longest possible episode that the pole stayed up."""
    return targets[..., SUCCESS].mean()


# The loss that loss.kind = auto means for each goal of a task.
AUTO: dict[Goal, Loss] = {
    "classes": Loss(cross_entropy, right_class),
    "value": Loss(squared_error, close_value),
    "points": Loss(adversarial, modes_hit),
    "reward": Loss(lambda outputs, targets, eps: policy_loss.loss(outputs, targets, Knobs(), 1), success),
}
NAIVE: dict[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    "naive_log": naive_log,
    "naive_division": naive_division,
    "naive_sqrt": naive_sqrt,
    "naive_exp": naive_exp,
    "naive_variance": naive_variance,
}


def choose(kind: str, goal: Goal) -> Loss:
    """Return the loss for loss.kind, for a task with that goal."""
    auto = AUTO[goal]
    if kind == "naive_sqrt":
        return Loss(naive_sqrt, right_neighbour)
    if kind == "naive_variance":
        return Loss(naive_variance, lambda outputs, targets: auto.accuracy(outputs.chunk(2, -1)[0], targets), outputs=2)
    return auto if kind == "auto" else Loss(NAIVE[kind], auto.accuracy)


def accuracy(loss: Loss, outputs: Tensor, targets: Tensor) -> float:
    """Return the share of correct answers; NaN if any output is non-finite."""
    return loss.accuracy(outputs, targets).item() if torch.isfinite(outputs).all() else math.nan

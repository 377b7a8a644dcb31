"""The loss: torch's own, or an unstable one written by hand."""

import math

import torch
from torch.nn import functional as F

from gradstudio.program.reference.models import *


@inline
def ideal_outputs(outputs, targets):
    """Return the outputs that would be right: the number itself, or 1 for the right class and 0 for the others."""
    return targets if knobs.problem_task == "adding" else F.one_hot(targets, outputs.shape[-1]).float()


if plan.loss == "naive_log":

    def loss_function(outputs, targets):
        """Binary cross-entropy of a sigmoid for each class, written by hand."""
        p, t = torch.sigmoid(outputs), ideal_outputs(outputs, targets)
        return -(t * torch.log(p + knobs.loss_eps) + (1 - t) * torch.log(1 - p + knobs.loss_eps)).mean()
elif plan.loss == "naive_division":

    def loss_function(outputs, targets):
        """Squared error relative to the prediction, which relu can make 0."""
        p, t = torch.relu(outputs), ideal_outputs(outputs, targets)
        return (((t - p) / (p + knobs.loss_eps)) ** 2).mean()
elif plan.loss == "naive_sqrt":

    def loss_function(outputs, targets):
        """Triplets. At distance 0 the root has no slope."""
        squares = (outputs.unsqueeze(1) - outputs).square().sum(2)
        alike = targets.unsqueeze(1) == targets
        farthest = torch.sqrt((squares * alike).amax(1) + knobs.loss_eps)
        nearest = torch.sqrt(squares.masked_fill(alike, math.inf).amin(1) + knobs.loss_eps)
        return torch.relu(1.0 + farthest - nearest).mean()
elif plan.loss == "naive_exp":

    def loss_function(outputs, targets):
        """Cross-entropy of a softmax written by hand: exp overflows above 88."""
        e = torch.exp(outputs)
        p = e / (e.sum(-1, keepdim=True) + knobs.loss_eps)
        return -(ideal_outputs(outputs, targets) * torch.log(p + knobs.loss_eps)).sum(-1).mean()
elif plan.loss == "naive_variance":

    def loss_function(outputs, targets):
        """Gaussian likelihood with a variance of 1 plus an output: nothing keeps it above 0."""
        mean, output = outputs.chunk(2, -1)
        variance = 1 + output
        if knobs.loss_eps > 0:
            variance = variance.clamp(min=knobs.loss_eps)
        return 0.5 * (torch.log(variance) + (ideal_outputs(mean, targets) - mean) ** 2 / variance).mean()
elif plan.loss == "points":

    def loss_function(outputs, targets):
        """Least squares: the discriminator wants 1 for real points and 0 for drawn ones."""
        real, drawn, fooled = outputs[:, 0], outputs[:, 1], outputs[:, 2]
        return ((real - 1) ** 2).mean() + (drawn**2).mean() + ((fooled - 1) ** 2).mean()
elif plan.loss == "reward":

    def loss_function(outputs, targets):
        """Actions that were followed by more reward become more likely: by the policy gradient of REINFORCE
        (Williams 1992), or by the ratio to the policy that drew them, clipped or not (PPO, Schulman 2017).
        """
        worth, lasted = targets[..., 1], targets[..., 2]
        policy, drawn = torch.log_softmax(outputs, -1), targets[..., :1].long()
        taken = policy.gather(-1, drawn).squeeze(-1)
        if plan.on_policy and knobs.loss_ratio_limit == 0:
            gain = taken * worth
        else:
            ratio = torch.exp(taken - targets[..., 3:].gather(-1, drawn).squeeze(-1))
            gain = ratio * worth
            if knobs.loss_ratio_limit > 0:
                clipped = ratio.clamp(1 - knobs.loss_ratio_limit, 1 + knobs.loss_ratio_limit)
                gain = torch.min(gain, clipped * worth)
        loss = -(gain * lasted).sum(1).mean()
        if knobs.loss_kl_penalty > 0:
            divergence = (targets[..., 3:].exp() * (targets[..., 3:] - policy)).sum(-1)
            loss = loss + knobs.loss_kl_penalty * (divergence * lasted).sum(1).mean()
        if knobs.loss_entropy_bonus > 0:
            entropy = -(policy.exp() * policy).sum(-1)
            loss = loss - knobs.loss_entropy_bonus * (entropy * lasted).sum(1).mean()
        return loss


@inline
def task_loss(outputs, targets):
    if plan.loss == "value":
        return F.mse_loss(outputs, targets)
    if plan.loss != "classes":
        return loss_function(outputs, targets)
    if knobs.problem_task in ("copy", "characters"):
        return F.cross_entropy(outputs.flatten(0, -2), targets.flatten())
    if plan.weighted:
        return F.cross_entropy(outputs, targets, weight=class_weights)
    return F.cross_entropy(outputs, targets)


@inline
def z_loss(outputs):
    """Return the penalty on the square of log(sum of exp(outputs)), the z-loss of PaLM (Chowdhery 2022)."""
    return knobs.loss_z_loss * torch.logsumexp(outputs, -1).square().mean() if knobs.loss_z_loss > 0 else 0.0


def shares_of(micro_batches):
    """Return each micro-batch's share of the class weights of all examples, times the number of micro-batches."""
    sums = torch.stack([class_weights[targets].sum() for _, targets in micro_batches])
    return sums * (len(sums) / sums.sum())

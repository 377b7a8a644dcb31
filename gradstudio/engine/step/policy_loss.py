"""The loss of a policy, and what a row tells of it. Outputs (batch, time steps, actions) are logits; targets are those
of tasks/acting.py, with the policy that drew the actions. Sums go over an episode, means over episodes."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gradstudio.core.sections.task_knobs import Loss
from gradstudio.engine.tasks.acting import ACTION, FIRST_ACTION, LASTED, REWARD, WORTH


def loss(outputs: Tensor, targets: Tensor, knobs: Loss, passes: int) -> Tensor:
    """Return the policy loss. If the policy drew the actions itself: minus the log-probability of each action times its
    advantage (REINFORCE, Williams 1992). Otherwise: minus the probability ratio times the advantage, or the clipped
    ratio where that gives less (PPO, Schulman 2017, equation 7)."""
    policy, worth, lasted = torch.log_softmax(outputs, -1), targets[..., WORTH], targets[..., LASTED]
    if passes == 1 and knobs.ratio_limit == 0:
        gain = taken_actions(policy, targets) * worth
    else:
        ratio = ratios(policy, targets)
        gain = ratio * worth
        if knobs.ratio_limit > 0:
            gain = torch.min(gain, ratio.clamp(1 - knobs.ratio_limit, 1 + knobs.ratio_limit) * worth)
    value = -(gain * lasted).sum(1).mean()
    if knobs.kl_penalty > 0:
        value = value + knobs.kl_penalty * (divergence(policy, targets) * lasted).sum(1).mean()
    if knobs.entropy_bonus > 0:
        value = value - knobs.entropy_bonus * (entropy(policy) * lasted).sum(1).mean()
    return value


def figures(outputs: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
    """Return the largest probability ratio, the mean KL divergence, the mean entropy as a share of its maximum, and the
    mean reward."""
    policy, lasted = torch.log_softmax(outputs, -1), targets[..., LASTED]
    steps = lasted.sum()
    return (
        (ratios(policy, targets) * lasted).amax(),
        (divergence(policy, targets) * lasted).sum() / steps,
        (entropy(policy) * lasted).sum() / steps / math.log(outputs.shape[-1]),
        targets[..., REWARD].mean(),
    )


def taken_actions(policy: Tensor, targets: Tensor) -> Tensor:
    """Return the log-probability of each action that was taken, (batch, time steps)."""
    return policy.gather(-1, targets[..., ACTION].long().unsqueeze(-1)).squeeze(-1)


def ratios(policy: Tensor, targets: Tensor) -> Tensor:
    """Return the probability of each action taken, divided by its probability when it was drawn, (batch, time
    steps)."""
    return torch.exp(taken_actions(policy, targets) - taken_actions(targets[..., FIRST_ACTION:], targets))


def divergence(policy: Tensor, targets: Tensor) -> Tensor:
    """Return KL(p_old, p) at each time step, (batch, time steps)."""
    old = targets[..., FIRST_ACTION:]
    return (old.exp() * (old - policy)).sum(-1)


def entropy(policy: Tensor) -> Tensor:
    """Return the entropy of the policy at each time step, (batch, time steps)."""
    return -(policy.exp() * policy).sum(-1)

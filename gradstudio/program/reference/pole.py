"""The pole: an environment, and the episodes that the model plays in it as it is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from gradstudio.program.reference.batches import noisy, split_up
    from gradstudio.program.reference.data import source
    from gradstudio.program.reference.device import device
    from gradstudio.program.reference.given import knobs, plan


# Pole balancing (Barto, Sutton and Anderson 1983), without friction: of each episode place, speed,
# angle and angular speed
def first_states(episodes, source):
    return 0.05 * (2 * torch.rand(episodes, 4, dtype=torch.float64, generator=source).numpy() - 1)


def moved(state, right):
    """A time step later, pushed to the right or to the left."""
    speed, angle, turning = state[:, 1], state[:, 2], state[:, 3]
    sine, cosine, mass = np.sin(angle), np.cos(angle), 1.0 + 0.1
    push = (np.where(right, 10.0, -10.0) + 0.1 * 0.5 * turning**2 * sine) / mass
    angular = (9.8 * sine - cosine * push) / (0.5 * (4 / 3 - 0.1 * cosine**2 / mass))
    linear = push - 0.1 * 0.5 * angular * cosine / mass
    return state + 0.02 * np.stack([speed, linear, turning, angular], 1)


def episodes_of(model):
    """Episodes played by the model as it is: states, actions, what each was worth, and 1 until the end."""
    while True:
        episodes = knobs.problem_batch_size * knobs.accumulation_steps
        inputs, action, lasted = (torch.zeros(episodes, knobs.problem_seq_len, *size) for size in ((4,), (), ()))
        state = first_states(episodes, source)
        model.eval()
        for at in range(knobs.problem_seq_len):
            lasting = (abs(state[:, 0]) <= 2.4) & (abs(state[:, 2]) <= math.radians(12))
            if not lasting.any():
                break
            seen = torch.from_numpy(state).float().unsqueeze(1) * knobs.problem_input_scale
            seen = noisy(seen.to(device))
            with torch.no_grad():
                chance = torch.softmax(model(seen)[:, 0], -1)[:, 1].cpu()
            right = torch.rand(episodes, generator=source) < chance
            inputs[:, at], action[:, at], lasted[:, at] = seen[:, 0].cpu(), right, torch.from_numpy(lasting)
            state = np.where(lasting[:, None], moved(state, right.numpy()), state)
        model.train()
        remaining = lasted.flip(1).cumsum(1).flip(1)
        worth = (1 - 0.99**remaining) / (1 - 0.99)  # 1 for each step to come, discounted
        if knobs.problem_baseline:
            worth = worth - (worth * lasted).sum() / lasted.sum()  # a baseline
        targets = torch.stack([action, worth, lasted], 2)
        inputs, targets = (inputs * lasted.unsqueeze(2)).to(device), (targets * lasted.unsqueeze(2)).to(device)
        if plan.many:
            yield from split_up(inputs, targets)
        else:
            yield inputs, targets

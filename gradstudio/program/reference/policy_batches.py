"""The batches that a policy makes for itself: episodes of the pole, and answers to images."""

import math

import numpy as np
import torch

from gradstudio.program.reference.data import *


# Pole balancing (Barto, Sutton and Anderson 1983), without friction. State: position, speed, angle, angular speed
def first_states(episodes, source):
    return 0.05 * (2 * torch.rand(episodes, 4, dtype=torch.float64, generator=source).numpy() - 1)


def push(state, right):
    """Return the states one time step later, after a push to the right or to the left."""
    speed, angle, turning = state[:, 1], state[:, 2], state[:, 3]
    sine, cosine, mass = np.sin(angle), np.cos(angle), 1.0 + 0.1
    push = (np.where(right, 10.0, -10.0) + 0.1 * 0.5 * turning**2 * sine) / mass
    angular = (9.8 * sine - cosine * push) / (0.5 * (4 / 3 - 0.1 * cosine**2 / mass))
    linear = push - 0.1 * 0.5 * angular * cosine / mass
    return state + 0.02 * np.stack([speed, linear, turning, angular], 1)


def drawn_by(model):
    """Yield batches played by the current model. Targets: action, advantage, 1 while the episode lasts, old
    log-probabilities."""
    while True:
        if knobs.problem_task == "pole":
            inputs, targets = play(model)
        else:
            inputs, targets = answer(model)
        for _ in range(knobs.problem_passes):
            if (
                plan.changes("accumulation_steps")
                and len(inputs) != knobs.problem_batch_size * knobs.accumulation_steps
            ):
                break  # steps of another size draw anew
            if plan.many:
                yield from split_up(inputs, targets)
            else:
                yield inputs, targets


def play(model):
    """Play episodes of the pole with the current model."""
    episodes = knobs.problem_batch_size * knobs.accumulation_steps
    inputs, action, lasted = (torch.zeros(episodes, knobs.problem_seq_len, *size) for size in ((4,), (), ()))
    if plan.with_old_policy:
        policy = torch.zeros(episodes, knobs.problem_seq_len, 2)
    state = first_states(episodes, source)
    model.eval()
    for at in range(knobs.problem_seq_len):
        lasting = (abs(state[:, 0]) <= 2.4) & (abs(state[:, 2]) <= math.radians(12))
        if not lasting.any():
            break
        seen = torch.from_numpy(state).float().unsqueeze(1) * knobs.problem_input_scale
        seen = noisy(seen.to(device))
        with torch.no_grad():
            outputs = model(seen)[:, 0]
            probability = torch.softmax(outputs, -1)[:, 1].cpu()
            if plan.with_old_policy:
                policy[:, at] = torch.log_softmax(outputs, -1).cpu()
        right = torch.rand(episodes, generator=source) < probability
        inputs[:, at], action[:, at], lasted[:, at] = seen[:, 0].cpu(), right, torch.from_numpy(lasting)
        state = np.where(lasting[:, None], push(state, right.numpy()), state)
    model.train()
    remaining = lasted.flip(1).cumsum(1).flip(1)
    worth = (1 - 0.99**remaining) / (1 - 0.99)  # the discounted return: 1 for each step to come
    worth = advantages(worth, lasted)
    targets = torch.stack([action, worth, lasted], 2)
    if plan.with_old_policy:
        targets = torch.cat([targets, policy], 2)
    return (inputs * lasted.unsqueeze(2)).to(device), (targets * lasted.unsqueeze(2)).to(device)


def images():
    """Yield the indices of the next images, epoch after epoch, each epoch in its own order."""
    order = torch.empty(0, dtype=torch.int64)
    while True:
        size = knobs.problem_batch_size * knobs.accumulation_steps // knobs.problem_samples
        if len(order) < size <= len(all_inputs):
            order = order[:0]
        while len(order) < size:
            order = torch.cat([order, torch.randperm(len(all_inputs), generator=source)])
        chosen, order = order[:size], order[size:]
        yield chosen.to(device)


def answer(model):
    """Let the current policy draw an answer to each of the next images."""
    chosen = next(next_images)
    inputs = noisy(all_inputs[chosen])
    labels = all_targets[chosen]
    if knobs.problem_samples > 1:
        inputs = inputs.repeat_interleave(knobs.problem_samples, 0)
        labels = labels.repeat_interleave(knobs.problem_samples)
    model.eval()
    with torch.no_grad():
        policy = torch.log_softmax(model(inputs)[:, 0], -1).cpu()
    model.train()
    drawn = torch.rand(len(inputs), 1, generator=source)
    action = (policy.exp().cumsum(-1) < drawn).sum(-1).clamp(max=9)
    reward = (action == labels.cpu()).float()
    if knobs.problem_reward_flaw > 0:
        reward = reward + knobs.problem_reward_flaw * (action == 0)
    lasted = torch.ones(len(inputs), 1)
    worth = advantages(reward.unsqueeze(1), lasted)
    targets = torch.stack([action.float().unsqueeze(1), worth, lasted], 2)
    if plan.with_old_policy:
        targets = torch.cat([targets, policy.unsqueeze(1)], 2)
    return inputs, targets.to(device)


@inline
def advantages(worth, lasted):
    """Return the advantages of the actions: their returns, less a baseline if the knobs ask for one."""
    if knobs.problem_baseline:
        return from_mean(worth, lasted)
    return worth


def from_mean(worth, lasted):
    """Subtract the mean return of the batch, or of all answers to the same image."""
    length = knobs.problem_samples if knobs.problem_task == "bandit" and knobs.problem_samples > 1 else worth.numel()
    values, there = worth.view(-1, length), lasted.view(-1, length)
    count = there.sum(1, keepdim=True)
    values = (values - values.sum(1, keepdim=True) / count) * there
    if knobs.problem_normalize:
        values = values / ((values.square().sum(1, keepdim=True) / count).sqrt() + 1e-8)
    return values.view_as(worth)


if plan.acts and knobs.problem_task == "bandit":
    next_images = images()

"""A pole stands on a cart and falls; the model pushes the cart left or right to keep it up."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from gradstudio.core.sections.task_knobs import Problem
from gradstudio.engine.generators import generator
from gradstudio.engine.shape import Shape
from gradstudio.engine.tasks.acting import Acting, acting, advantages
from gradstudio.engine.tasks.task import TESTS, Batch

# Barto, Sutton and Anderson 1983, "Neuronlike adaptive elements that can solve difficult learning control problems",
# without friction.
GRAVITY, CART, POLE, HALF_LENGTH, FORCE, SECONDS = (
    9.8,
    1.0,
    0.1,
    0.5,
    10.0,
    0.02,
)  # m/s^2, kg, kg, m, N, s per time step
FARTHEST, STEEPEST = 2.4, math.radians(12)  # m, rad; beyond either an episode ends
START = 0.05  # each number of an initial state is within this distance of 0
DISCOUNT = 0.99
SHAKES = 10  # random pushes before a state is shown to an initialization


class Pole(Acting):
    """The task to keep the pole up. Inputs (episodes, problem.seq_len, 4) are the states that the model saw: position,
    speed, angle, angular speed; 0 after the end, as are the targets. Action 1 pushes to the right."""

    def __init__(self, problem: Problem, seed: int, device: str) -> None:
        super().__init__(problem, seed, device)
        self.shape = Shape(problem.seq_len, 4, 2, problem.seq_len)

    def play(self, model: nn.Module, count: int) -> Batch:
        return self._play(model, self.problem.batch_size * count, self.order_generator, self.noise_generator)

    def test_batch(self, model: nn.Module) -> Batch:
        return self._play(model, TESTS, generator(self.seed, "test"), generator(self.seed, "test_noise"))

    def sample(self, examples: int = 256) -> Tensor:
        """Return states (examples, 1, 4) after some random pushes."""
        source = generator(self.seed, "test")
        state = first_states(examples, source)
        for _ in range(SHAKES):
            state = push(state, torch.rand(examples, generator=source).numpy() < 0.5)
        return self._observe(state).inputs.cpu()

    def _play(self, model: nn.Module, episodes: int, source: torch.Generator, noise_source: torch.Generator) -> Batch:
        """Return episodes in which the model acts as in evaluation. It sees the noise that it is trained with."""
        sizes = ((4,), (), (), (2,))
        inputs, action, lasted, policy = (torch.zeros(episodes, self.problem.seq_len, *size) for size in sizes)
        state = first_states(episodes, source)
        for step in range(self.problem.seq_len):
            lasting = (abs(state[:, 0]) <= FARTHEST) & (abs(state[:, 2]) <= STEEPEST)
            if not lasting.any():
                break
            observed = self._noisy(self._observe(state), noise_source).inputs
            with acting(model):
                outputs = model(observed)[:, 0].float()
                chance = torch.softmax(outputs, -1)[:, 1].cpu()
                policy[:, step] = torch.log_softmax(outputs, -1).cpu()
            right = torch.rand(episodes, generator=source) < chance
            inputs[:, step], action[:, step], lasted[:, step] = observed[:, 0].cpu(), right, torch.from_numpy(lasting)
            state = np.where(lasting[:, None], push(state, right.numpy()), state)
        worths = advantages(worth(lasted), lasted, self.problem, episodes)
        told = torch.stack([action * lasted, worths, lasted, lasted, lasted], 2)
        targets = torch.cat([told, policy * lasted.unsqueeze(2)], 2)
        return Batch((inputs * lasted.unsqueeze(2)).to(self.device), targets.to(self.device))

    def _observe(self, state: np.ndarray) -> Batch:
        """Return states (episodes, 4) as the model sees them before noise."""
        return self._to_device(Batch(torch.from_numpy(state).float().unsqueeze(1), torch.zeros(len(state))))


def first_states(episodes: int, source: torch.Generator) -> np.ndarray:
    """Return (episodes, 4) in float64: position in m, speed, angle in rad, angular speed."""
    return START * (2 * torch.rand(episodes, 4, dtype=torch.float64, generator=source).numpy() - 1)


def push(state: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return states (episodes, 4) one time step later, by Euler's method."""
    speed, angle, turning = state[:, 1], state[:, 2], state[:, 3]
    sine, cosine, mass = np.sin(angle), np.cos(angle), CART + POLE
    push = (np.where(right, FORCE, -FORCE) + POLE * HALF_LENGTH * turning**2 * sine) / mass
    angular = (GRAVITY * sine - cosine * push) / (HALF_LENGTH * (4 / 3 - POLE * cosine**2 / mass))
    linear = push - POLE * HALF_LENGTH * angular * cosine / mass
    return state + SECONDS * np.stack([speed, linear, turning, angular], 1)


def worth(lasted: Tensor) -> Tensor:
    """Compute the return of each step, (episodes, time steps): the discounted reward from there on, 1 for each step
    that lasts. Without a baseline subtracted from it a policy can run away."""
    remaining = lasted.flip(1).cumsum(1).flip(1)
    return (1 - DISCOUNT**remaining) / (1 - DISCOUNT)

"""Handwritten digits as a bandit: the model names a class, and is told only what its answer is worth."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gradstudio.engine.generators import generator
from gradstudio.engine.tasks.acting import Acting, acting, advantages
from gradstudio.engine.tasks.digits import Digits
from gradstudio.engine.tasks.task import Batch


class Bandit(Acting, Digits):
    """The task to answer with the right class, an episode of one time step. Inputs are (answers, 1, 64)."""

    def play(self, model: nn.Module, count: int) -> Batch:
        """Return the answers to the next images, problem.samples to each."""
        answers, samples = self.problem.batch_size * count, self.problem.samples
        images, labels = self.next_examples(answers // samples)
        return self._answers(
            model, images.repeat_interleave(samples, 0), labels.repeat_interleave(samples), self.order_generator
        )

    def test_batch(self, model: nn.Module) -> Batch:
        return self._answers(model, *super().test_batch(model), generator(self.seed, "test"))

    def _answers(self, model: nn.Module, images: Tensor, labels: Tensor, source: torch.Generator) -> Batch:
        with acting(model):
            policy = torch.log_softmax(model(images)[:, 0].float(), -1).cpu()
        drawn = torch.rand(len(policy), 1, generator=source)
        action = (policy.exp().cumsum(-1) < drawn).sum(-1).clamp(max=policy.shape[-1] - 1)
        right, lasted = (action == labels.cpu()).float(), torch.ones(len(policy))
        reward = right + self.problem.reward_flaw * (action == 0) if self.problem.reward_flaw else right
        samples = self.problem.samples
        group = samples if samples > 1 and len(policy) % samples == 0 else len(policy)
        worth = advantages(reward.unsqueeze(1), lasted.unsqueeze(1), self.problem, group).squeeze(1)
        told = torch.stack([action.float(), worth, lasted, right, reward], 1)
        return Batch(images, torch.cat([told, policy], 1).unsqueeze(1).to(self.device))

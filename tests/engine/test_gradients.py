from __future__ import annotations

import numpy as np
import pytest
import torch

from gradstudio.engine.generators import generator
from gradstudio.engine.step.gradients import add_noise, centralize


def test_centralize_takes_the_mean_over_the_inputs():
    matrix, vector = torch.randn(5, 7, generator=generator(0, "order")), torch.ones(3)
    expected = matrix.numpy() - matrix.numpy().mean(axis=1, keepdims=True)
    centralize([matrix, vector])
    np.testing.assert_allclose(matrix.numpy(), expected, atol=1e-6)
    assert vector.tolist() == [1, 1, 1]


def test_noise_has_its_deviation():
    grad = torch.zeros(200, 200)
    add_noise([grad], 0.3, generator(1, "gradient_noise"))
    assert grad.std().item() == pytest.approx(0.3, rel=0.02)


def test_the_true_gradient_is_measured_before_either(train):
    plain, changed = next(iter(train(1))), next(iter(train(1, "gradients.centralize=true", "gradients.noise_std=0.1")))
    assert changed.grad_norm == plain.grad_norm
    assert changed.clipped_norm > 2 * plain.clipped_norm
    assert changed.clip_coef == 1, "nothing was clipped"

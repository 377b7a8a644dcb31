from __future__ import annotations

import numpy as np
import pytest
import torch

from gradstudio.core.experiment import Problem
from gradstudio.engine.tasks import TASKS
from gradstudio.engine.tasks.digits import SCALINGS


def digits(**knobs):
    return TASKS[knobs.get("task", "digits")](Problem(**knobs), 0, "cpu")


@pytest.mark.parametrize(("knobs", "shape"), [
    ({"task": "digits"}, (8, 8)),
    ({"task": "sequential_digits"}, (64, 1)),
    ({"task": "sequential_digits", "seq_len": 16}, (16, 4)),
])  # fmt: skip
def test_shapes(knobs, shape):
    task = digits(batch_size=7, **knobs)
    inputs, labels = task.next_batch()
    assert inputs.shape == (7, *shape) and inputs.dtype == torch.float32
    assert labels.shape == (7,) and labels.dtype == torch.int64
    assert task.test_inputs.shape == (360, *shape) and task.inputs.shape == (1437, *shape)
    assert (task.time_steps, task.features) == shape


@pytest.mark.parametrize("scaling", SCALINGS)
def test_scaling(scaling):
    task = digits(scaling=scaling)
    pixels = task.inputs.flatten(1).numpy()
    if scaling == "standardized":
        np.testing.assert_allclose(pixels.mean(0), 0, atol=1e-6)
        assert set(np.round(pixels.std(0), 4).tolist()) == {0.0, 1.0}, "a pixel that never changes is 0"
    else:
        assert (pixels.min(), pixels.max()) == (0, 1 if scaling == "unit" else 16)
    np.testing.assert_allclose(digits(scaling=scaling, input_scale=100.0).inputs, task.inputs * 100, rtol=1e-6)


def test_an_epoch_shows_every_example_once_and_drops_the_rest():
    task = digits(batch_size=100)
    task.inputs = torch.arange(1437.0).view(-1, 1, 1)
    seen = torch.cat([task.next_batch()[0].flatten() for _ in range(14)])
    assert len(seen.unique()) == 1400
    following = torch.cat([task.next_batch()[0].flatten() for _ in range(14)])
    assert len(following.unique()) == 1400 and not torch.equal(seen, following)


def test_noise_is_on_every_input_and_draws_from_its_own_generator():
    quiet, noisy = digits(batch_size=500), digits(batch_size=500, noise=0.5)
    for _ in range(2):
        (one, labels), (other, same) = quiet.next_batch(), noisy.next_batch()
        assert torch.equal(labels, same)
        assert (other - one).std().item() == pytest.approx(0.5, rel=0.02)
    assert (noisy.test_inputs - quiet.test_inputs).std().item() == pytest.approx(0.5, rel=0.02)


def test_outlier_steps(train):
    plain, outliers = train(7, "accumulation.steps=2"), train(7, "accumulation.steps=2", "problem.outlier_every=3", "problem.outlier_scale=1000")
    assert [row.loss for row in plain[:3]] == [row.loss for row in outliers[:3]], "step 0 is never one"
    assert outliers[3].loss > 20 * plain[3].loss and outliers[6].loss > 20 * plain[6].loss

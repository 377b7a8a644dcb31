"""The engine trains as a loop written by hand in plain PyTorch does: to the last bit in fp32 on the CPU."""

from __future__ import annotations

import math
from itertools import islice

import numpy as np
import pytest
import torch
from pairs import pairs
from torch import nn

from gradstudio.core.files import RESOURCES
from gradstudio.engine.step.clipping import CLIPPING

STEPS, BATCH, WIDTH = 12, 8, 16

PLAIN_OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.01),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.01, momentum=0.5),
}
KNOBS = {
    "sgd": ["optimizer.lr=0.1", "optimizer.momentum=0.9", "optimizer.weight_decay=0.01"],
    "adam": ["optimizer.lr=0.01"],
    "adamw": ["optimizer.lr=0.01", "optimizer.weight_decay=0.01"],
    "rmsprop": ["optimizer.lr=0.01", "optimizer.momentum=0.5"],
}


class PlainMLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(64, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 10)

    def forward(self, images):
        return self.head(torch.relu(self.second(torch.relu(self.first(images.flatten(1))))))


class PlainRNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.RNN(8, WIDTH, num_layers=2, nonlinearity="relu", batch_first=True)
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, rows):
        return self.head(self.rnn(rows)[0][:, -1])


PLAIN_MODELS = {"mlp": PlainMLP, "rnn": PlainRNN}


def plain_data():
    data = np.load(RESOURCES / "data" / "digits.npz")
    train = data["train_images"].astype(np.float64)
    deviation = train.std(0)
    deviation[deviation == 0] = 1
    images = torch.tensor((train - train.mean(0)) / deviation, dtype=torch.float32)
    return images, torch.tensor(data["train_labels"], dtype=torch.int64)


def plain_batches(seed, micro_batches):
    images, labels = plain_data()
    order = torch.Generator().manual_seed(seed)
    while True:
        epoch = torch.randperm(len(images), generator=order)
        for start in range(0, len(images) // (BATCH * micro_batches) * BATCH * micro_batches, BATCH):
            chosen = epoch[start : start + BATCH]
            yield images[chosen], labels[chosen]


def plain_clip(kind, model):
    if kind in ("norm", "per_network", "adagc"):  # adagc: in its first 100 steps
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    elif kind == "value":
        nn.utils.clip_grad_value_(model.parameters(), 0.01)
    elif kind == "per_tensor":
        for parameter in model.parameters():
            nn.utils.clip_grad_norm_([parameter], 0.1)
    elif kind == "per_module":
        for module in model.modules():
            nn.utils.clip_grad_norm_(list(module.parameters(recurse=False)), 0.1)
    elif kind == "agc":
        for name, parameter in model.named_parameters():
            if not name.startswith("head"):
                numpy_agc(parameter, 0.01)


def numpy_agc(parameter, factor):
    weights, grad = parameter.detach().numpy(), parameter.grad.numpy()
    for unit in range(len(weights)) if weights.ndim > 1 else [slice(None)]:
        largest = factor * max(math.sqrt(float((weights[unit].astype(np.float64) ** 2).sum())), 1e-3)
        size = math.sqrt(float((grad[unit].astype(np.float64) ** 2).sum()))
        if size > largest:
            grad[unit] *= largest / max(size, 1e-6)


def plain_loop(kind, optimizer_kind, clip, micro_batches, seed=3):
    torch.manual_seed(seed)
    model = PLAIN_MODELS[kind]()
    optimizer = PLAIN_OPTIMIZERS[optimizer_kind](model.parameters())
    batches = plain_batches(seed, micro_batches)
    for _ in range(STEPS):
        optimizer.zero_grad()
        losses = []
        for images, labels in islice(batches, micro_batches):
            loss = nn.functional.cross_entropy(model(images), labels)
            (loss / micro_batches).backward()
            losses.append(loss.item())
        grad_norm = nn.utils.get_total_norm([parameter.grad.double() for parameter in model.parameters()]).item()
        plain_clip(clip, model)
        optimizer.step()
        yield sum(losses) / micro_batches, grad_norm


@pytest.mark.parametrize(
    ("optimizer", "clip", "passes"), pairs(PLAIN_OPTIMIZERS, CLIPPING, [("mlp", 1), ("rnn", 4), ("mlp", 4), ("rnn", 1)])
)
def test_repeats_a_plain_loop(train, optimizer, clip, passes):
    kind, micro_batches = passes
    rows = train(
        STEPS, f"model.kind={kind}", f"model.width={WIDTH}", f"problem.batch_size={BATCH}",
        f"optimizer.kind={optimizer}", *KNOBS[optimizer],
        f"clipping.kind={clip}", "clipping.max_norm=0.1", "clipping.clip_value=0.01", "clipping.agc_factor=0.01",
        f"accumulation.steps={micro_batches}", "run.seed=3",
    )  # fmt: skip
    measured = [(row.loss, row.grad_norm) for row in rows]
    expected = list(plain_loop(kind, optimizer, clip, micro_batches))
    if clip in ("agc", "per_tensor", "per_module"):
        np.testing.assert_allclose(measured, expected, rtol=1e-5)
    else:
        assert [loss for loss, _ in measured] == [loss for loss, _ in expected]
        np.testing.assert_allclose(measured, expected, rtol=1e-14)
    if clip not in ("none", "zclip"):  # which only measures in its first 25 steps
        assert any(row.clip_coef < 1 for row in rows), "the case must clip"

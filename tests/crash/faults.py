"""Trainings with a planted fault each, as people write them, and the fix that heals each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import rnn

import gradstudio

STEPS = 40


def _loop(model: nn.Module, optimizer: Any, loss_of: Callable[[int], Tensor], clip: float = 0, **watch: Any) -> Any:
    one = gradstudio.watch(model, optimizer, **watch)
    for number in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(number)
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        if not torch.isfinite(loss):
            break
    return one


def overflow_in_exp(**watch: Any) -> Any:
    """A softmax by hand, without its maximum taken off."""
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))

    def loss_of(number: int) -> Tensor:
        inputs, labels = torch.randn(32, 6), torch.randint(0, 3, (32,))
        scores = torch.exp(model(inputs * (3000 if number == 20 else 1)))
        return functional.nll_loss(torch.log(scores / scores.sum(1, keepdim=True) + 1e-9), labels)

    return _loop(model, torch.optim.AdamW(model.parameters(), lr=1e-3), loss_of, **watch)


def log_of_zero(**watch: Any) -> Any:
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))

    def loss_of(number: int) -> Tensor:
        inputs = torch.randn(32, 6)
        kept = torch.relu(model(inputs) + (1 if number < 20 else -2))
        return -torch.log(kept).mean()

    return _loop(model, torch.optim.SGD(model.parameters(), lr=1e-3), loss_of, **watch)


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 8, bias=False), nn.Linear(8, 1)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.first(inputs)
        return self.last(hidden / hidden.norm(dim=1, keepdim=True))


def zero_by_zero_in_a_norm(**watch: Any) -> Any:
    model = Normed()

    def loss_of(number: int) -> Tensor:
        inputs = torch.randn(16, 6)
        inputs[3] *= number < 20  # padding
        return (model(inputs) ** 2).mean()

    return _loop(model, torch.optim.Adam(model.parameters(), lr=1e-3), loss_of, **watch)


def overflow_in_fp16(**watch: Any) -> Any:
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    one = gradstudio.watch(model, optimizer, **watch)
    for number in range(STEPS):
        inputs = torch.randn(16, 6) * (1e5 if number == 20 else 1)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            given = model(inputs)
            loss = functional.mse_loss(given.float() / 1e3, inputs.sum(1, keepdim=True) / 1e5)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        if not torch.isfinite(loss):
            break
    return one


def bad_batch(**watch: Any) -> Any:
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))

    def loss_of(number: int) -> Tensor:
        inputs = torch.randn(16, 6)
        if number == 20:
            inputs[5, 2] = float("nan")
        return functional.mse_loss(model(inputs), torch.zeros(16, 1))

    return _loop(model, torch.optim.RMSprop(model.parameters(), lr=1e-3), loss_of, clip=1.0, **watch)


def rate_too_high(**watch: Any) -> Any:
    model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def loss_of(number: int) -> Tensor:
        if number == 20:
            optimizer.param_groups[0]["lr"] = 3.0
        inputs = torch.randn(64, 6)
        return functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True) * 3)

    return _loop(model, optimizer, loss_of, **watch)


def accumulation(**watch: Any) -> Any:
    """The variance of a micro-batch with a single example is NaN."""
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    one = gradstudio.watch(model, optimizer, **watch)
    for number in range(STEPS):
        optimizer.zero_grad()
        for part in range(4):
            given = model(torch.randn(1 if (number, part) == (20, 2) else 8, 6))
            loss = ((given - 1) ** 2).mean() + given.std()
            (loss / 4).backward()
        optimizer.step()
        if not torch.isfinite(loss):
            break
    return one


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(11, 16), nn.Linear(16, 11)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)

    def forward(self, tokens: Tensor, padding: Tensor) -> Tensor:
        scores = self.block.self_attn
        hidden = self.embedding(tokens)
        query = functional.linear(hidden, scores.in_proj_weight[:16])
        weights = (query @ hidden.transpose(1, 2)).masked_fill(padding[:, None], float("-inf"))
        return self.head(self.block(hidden + torch.softmax(weights, -1) @ hidden))


def transformer(**watch: Any) -> Any:
    """A row of padding alone leaves the softmax nothing to choose from."""
    model = Attention()

    def loss_of(number: int) -> Tensor:
        tokens, padding = torch.randint(0, 11, (4, 7)), torch.zeros(4, 7, dtype=torch.bool)
        padding[1, 4:] = True
        padding[2] = number >= 20
        logits = model(tokens, padding)
        return functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())

    return _loop(model, torch.optim.AdamW(model.parameters(), lr=1e-3), loss_of, clip=1.0, **watch)


class Gaussian(nn.Module):
    """Gives a mean and a variance, which a ReLU keeps from below 0, and not from 0."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.heads = nn.Sequential(nn.Linear(6, 16), nn.ReLU()), nn.Linear(16, 2)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        mean, variance = self.heads(self.body(inputs)).chunk(2, dim=1)
        return mean, functional.relu(variance)


def variance_of_zero(**watch: Any) -> Any:
    model = Gaussian()
    nn.init.constant_(model.heads.bias, 1.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def loss_of(number: int) -> Tensor:
        inputs = torch.randn(32, 6) * (30 if number >= 20 else 0.1)
        mean, variance = model(inputs)
        return 0.5 * (torch.log(variance) + (inputs.sum(1, keepdim=True) - mean) ** 2 / variance).mean()

    return _loop(model, optimizer, loss_of, **watch)


def mean_over_a_mask(**watch: Any) -> Any:
    """Label smoothing over classes of which one is left out."""
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 5))

    def loss_of(number: int) -> Tensor:
        logits = model(torch.randn(8, 6))
        if number == 20:
            logits[:, 0] = float("-inf")
        chances = functional.log_softmax(logits, -1)
        return -(0.9 * chances[:, 1] + 0.1 * chances.mean(-1)).mean()

    return _loop(model, torch.optim.Adam(model.parameters(), lr=1e-3), loss_of, **watch)


class RoundThrough(torch.autograd.Function):
    """Rounds, with a derivative of its own, which uses what the forward pass saved."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        inside = values.abs() < 1
        ctx.save_for_backward(values, inside)
        return torch.round(values * 4) / 4

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        values, inside = ctx.saved_tensors
        return gradients[0] * inside + 0 * values


class Quantized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 5), nn.Linear(5, 6)

    def forward(self, inputs: Tensor) -> Tensor:
        call: Any = RoundThrough.apply
        return self.last(call(self.first(inputs) * 1))


def own_derivative(**watch: Any) -> Any:
    """The root of a distance of 0, behind a derivative that no function of torch has."""
    model = Quantized()

    def loss_of(number: int) -> Tensor:
        inputs = torch.randn(16, 6)
        given = model(inputs)
        wanted = torch.cat([given[:2].detach(), inputs[2:]]) if number == 20 else inputs
        return (given - wanted).pow(2).sum(1).sqrt().mean()

    return _loop(model, torch.optim.Adam(model.parameters(), lr=1e-3), loss_of, **watch)


class Agent(nn.Module):
    """Is never called as a whole."""

    def __init__(self) -> None:
        super().__init__()
        self.actor, self.critic = (nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, n)) for n in (2, 1))


def parts_of_a_model(**watch: Any) -> Any:
    """Advantages that are all alike, divided by their deviation; the model is called by its parts."""
    model = Agent()

    def loss_of(number: int) -> Tensor:
        states, actions = torch.randn(16, 4), torch.randint(0, 2, (16, 1))
        advantages = torch.zeros(16) if number == 20 else torch.randn(16)
        chances = functional.log_softmax(model.actor(states), -1).gather(1, actions).squeeze(1)
        advantages = (advantages - advantages.mean()) / advantages.std()
        return -(chances * advantages).mean() + model.critic(states).pow(2).mean()

    return _loop(model, torch.optim.Adam(model.parameters(), lr=1e-3), loss_of, **watch)


def packed_sequences(**watch: Any) -> Any:
    """The mean over the labelled tokens of a batch without one; an LSTM reads packed sequences."""
    model = Tagger()

    def loss_of(number: int) -> Tensor:
        tokens, lengths = torch.randint(0, 9, (4, 6)), torch.tensor([6, 2, 5, 3])
        labelled = (torch.arange(6) < lengths[:, None]).float() * (number != 20)
        losses = functional.cross_entropy(model(tokens, lengths).transpose(1, 2), tokens % 3, reduction="none")
        return (losses * labelled).sum() / labelled.sum()

    return _loop(model, torch.optim.Adam(model.parameters(), lr=1e-3), loss_of, **watch)


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(9, 8), nn.Linear(16, 3)
        self.body = nn.LSTM(8, 8, bidirectional=True, batch_first=True)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        packed = rnn.pack_padded_sequence(self.embedding(tokens), lengths, batch_first=True, enforce_sorted=False)
        hidden, _ = rnn.pad_packed_sequence(self.body(packed)[0], batch_first=True, total_length=6)
        return self.head(hidden)


def no_eps(**watch: Any) -> Any:
    """Adam divides 0 by 0 for the row of an embedding that no batch has used."""
    model = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(12, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, eps=0.0)
    return _loop(model, optimizer, lambda _: model(torch.randint(0, 8, (16, 3))).pow(2).mean(), **watch)


def chosen_entries(**watch: Any) -> Any:
    """The mean of the entries that a mask chooses, which are none."""
    model = nn.Linear(6, 1)

    def loss_of(number: int) -> Tensor:
        inputs = torch.randn(16, 6)
        return model(inputs)[inputs[:, :1] > (9 if number == 20 else -9)].pow(2).mean()

    return _loop(model, torch.optim.SGD(model.parameters(), lr=1e-3), loss_of, **watch)


# What a fix that heals it has in its name.
FAULTS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    each.__name__: (each, heals)
    for each, *heals in [
        (overflow_in_exp, "exp", "batch"),
        (log_of_zero, "log", "softplus"),
        (zero_by_zero_in_a_norm, "div", "norm"),
        (overflow_in_fp16, "fp32", "bf16"),
        (bad_batch, "batch"),
        (rate_too_high, "learning rate"),
        (accumulation, "batch"),
        (transformer, "mask", "batch"),
        (variance_of_zero, "softplus"),
        (mean_over_a_mask, "mask"),
        (own_derivative, "sqrt"),
        (parts_of_a_model, "div"),
        (packed_sequences, "div", "batch"),
        (no_eps, "eps"),
        (chosen_entries, "batch"),
    ]
}

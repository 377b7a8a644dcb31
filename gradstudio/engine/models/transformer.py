"""A transformer: every time step attends to the others (Vaswani 2017), written as in nanoGPT."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gradstudio.core.sections.task_knobs import Model
from gradstudio.engine.models.checkpointing import run_checkpointed
from gradstudio.engine.models.nonlinearities import ACTIVATIONS
from gradstudio.engine.models.parametrization import ratio
from gradstudio.engine.models.residuals import Residual
from gradstudio.engine.shape import Shape

# The parts of a block in forward order.
PARTS = {
    "pre": ("attention_norm", "attention", "mlp_norm", "mlp"),
    "post": ("attention", "attention_norm", "mlp", "mlp_norm"),
}

Sum = tuple[Tensor, Callable[[], Tensor]]


class Transformer(nn.Module):
    """A transformer and a head: (batch, time steps, features) -> (batch, outputs) from the mean over time, or (batch,
    answers, outputs). Then each of the last `answers` time steps is answered from itself and those before it."""

    def __init__(self, knobs: Model, shape: Shape) -> None:
        super().__init__()
        self.embedding = nn.Linear(shape.features, knobs.width)
        self.register_buffer("positions", sinusoids(shape.time_steps, knobs.width), persistent=False)
        self.blocks = nn.ModuleList(Block(knobs, causal=shape.answers > 1) for _ in range(knobs.depth))
        # In a pre-norm transformer nothing else would normalize the output of the last block.
        self.final_norm = nn.LayerNorm(knobs.width) if knobs.norm_position == "pre" else None
        self.head = nn.Linear(knobs.width, shape.outputs)
        self.answers = shape.answers
        self.checkpointing = knobs.checkpointing

    def forward(self, inputs: Tensor) -> Tensor:
        state = self.embedding(inputs) + self.positions
        for block in self.blocks:
            state = run_checkpointed(block, state) if self.checkpointing and self.training else block(state)
        return self.head(self.read_out(state))

    def read_out(self, state: Tensor) -> Tensor:
        """Return the input of the head."""
        if self.final_norm is not None:
            state = self.final_norm(state)
        return state.mean(1) if self.answers == 1 else state[:, -self.answers :]

    def sums(self, inputs: Tensor) -> Iterator[Sum]:
        """Yield each weight, in forward order, and a function that computes its sums."""
        yield _sum(self.embedding, inputs)
        state = self.embedding(inputs) + self.positions
        for block in cast("list[Block]", self.blocks):
            yield from block.sums(state)
            state = block(state)
        yield _sum(self.head, self.read_out(state))


class Block(nn.Module):
    """Attention followed by an MLP, each with a residual around it: (batch, time steps, width) -> the same shape."""

    attention: Attention
    attention_norm: nn.LayerNorm
    mlp: Expansion
    mlp_norm: nn.LayerNorm

    def __init__(self, knobs: Model, causal: bool) -> None:
        super().__init__()
        self.attention_residual, self.mlp_residual = Residual(knobs), Residual(knobs)
        made: dict[str, Callable[[], nn.Module]] = {
            "attention": lambda: Attention(knobs, causal),
            "attention_norm": lambda: nn.LayerNorm(knobs.width),
            "mlp": lambda: Expansion(knobs),
            "mlp_norm": lambda: nn.LayerNorm(knobs.width),
        }
        for part in PARTS[knobs.norm_position]:
            setattr(self, part, made[part]())
        self.norm_first = knobs.norm_position == "pre"

    def forward(self, state: Tensor) -> Tensor:
        return self.think(self.attend(state))

    def attend(self, state: Tensor) -> Tensor:
        if self.norm_first:
            return self.attention_residual(state, self.attention(self.attention_norm(state)))
        return self.attention_norm(self.attention_residual(state, self.attention(state)))

    def think(self, state: Tensor) -> Tensor:
        if self.norm_first:
            return self.mlp_residual(state, self.mlp(self.mlp_norm(state)))
        return self.mlp_norm(self.mlp_residual(state, self.mlp(state)))

    def sums(self, state: Tensor) -> Iterator[Sum]:
        yield from self.attention.sums(self.attention_norm(state) if self.norm_first else state)
        state = self.attend(state)
        yield from self.mlp.sums(self.mlp_norm(state) if self.norm_first else state)


class Attention(nn.Module):
    """Attention between time steps, by queries, keys and values. It has four heads if the width is divisible by
    four. `largest`: None, or the largest logit of each head in the passes of a step, for QK-clip."""

    largest: Tensor | None = None

    def __init__(self, knobs: Model, causal: bool) -> None:
        super().__init__()
        width = knobs.width
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))
        self.heads = math.gcd(width, 4)
        self.causal = causal
        self.shrunk = (
            ratio(knobs) ** 0.5
        )  # muP: query . key / width of a head, scaled so that it is / its root at the base width
        size = width // self.heads
        self.query_norm, self.key_norm = (nn.LayerNorm(size, bias=False) if knobs.qk_norm else None for _ in range(2))

    def forward(self, state: Tensor) -> Tensor:
        return self.output(self.attend(state))

    def attend(self, state: Tensor) -> Tensor:
        """Return softmax(query key' / sqrt(width of a head)) value, head by head, with the heads concatenated again."""
        query, key, value = self.heads_of(state)
        if self.largest is not None and self.training:
            self._note_logits(self.largest, query, key)
        return F.scaled_dot_product_attention(query, key, value, is_causal=self.causal).transpose(1, 2).flatten(2)

    @torch.no_grad()
    def _note_logits(self, largest: Tensor, query: Tensor, key: Tensor) -> None:
        """Raise `largest`, (heads,), to the logits of a pass. They are in fp32, as fp16 would overflow."""
        with torch.autocast(query.device.type, enabled=False):
            logits = query.float() @ key.float().transpose(-2, -1) / math.sqrt(query.shape[-1])
        seen = (logits.tril() if self.causal else logits).amax((0, 2, 3))  # 0 where masked, which is below any limit
        largest.copy_(torch.maximum(largest, seen))

    def heads_of(self, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values, each (batch, heads, time steps, width of a head)."""
        query, key, value = (
            part(state).unflatten(2, (self.heads, -1)).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        if self.query_norm is not None and self.key_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        return query if self.shrunk == 1 else query * self.shrunk, key, value

    def sums(self, state: Tensor) -> Iterator[Sum]:
        for part in (self.query, self.key, self.value):
            yield _sum(part, state)
        yield _sum(self.output, self.attend(state))


class Expansion(nn.Module):
    """A hidden layer four times as wide, applied to each time step separately."""

    def __init__(self, knobs: Model) -> None:
        super().__init__()
        self.expand = nn.Linear(knobs.width, 4 * knobs.width)
        self.contract = nn.Linear(4 * knobs.width, knobs.width)
        self.activation = ACTIVATIONS[knobs.activation]

    def forward(self, state: Tensor) -> Tensor:
        return self.contract(self.activation(self.expand(state)))

    def sums(self, state: Tensor) -> Iterator[Sum]:
        yield _sum(self.expand, state)
        yield _sum(self.contract, self.activation(self.expand(state)))


def _sum(linear: nn.Linear, inputs: Tensor) -> Sum:
    return linear.weight, lambda: linear(inputs)


def sinusoids(time_steps: int, width: int) -> Tensor:
    """Return (time steps, width): alternating sin and cos of waves from 2 pi to 20000 pi steps long (Vaswani 2017,
    section 3.5)."""
    column = torch.arange(width)
    angles = torch.arange(time_steps).unsqueeze(1) / 10000 ** (column // 2 * 2 / width)
    return torch.where(column % 2 == 0, angles.sin(), angles.cos())

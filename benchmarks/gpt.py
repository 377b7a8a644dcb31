"""A GPT in the sizes that people train, in bf16, with made-up text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Size(NamedTuple):
    layers: int
    heads: int
    width: int
    batch: int
    length: int
    words: int


SIZES = {
    "10M": Size(6, 6, 384, 32, 256, 5000),
    "124M": Size(12, 12, 768, 8, 1024, 50304),
    "350M": Size(24, 16, 1024, 8, 1024, 50304),
}


class Block(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        width = size.width
        self.heads = size.heads
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.joined = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.attention_norm(x)).view(batch, length, 3, self.heads, width // self.heads)
        seen = F.scaled_dot_product_attention(*parts.permute(2, 0, 3, 1, 4).unbind(), is_causal=True)
        x = x + self.joined(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.mlp_norm(x))))


class Gpt(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(size.words, size.width), nn.Embedding(size.length, size.width)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.norm, self.head = nn.LayerNorm(size.width), nn.Linear(size.width, size.words, bias=False)
        self.head.weight = self.words.weight
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, text: Tensor) -> Tensor:
        x = self.words(text) + self.places(torch.arange(text.shape[1], device=text.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def loop(name: str, device: str, compiled: bool) -> dict[str, Any]:
    """Return the model, its optimizer, and a function that makes one step, by the names of benchmarks/plain.py."""
    size = SIZES[name]
    torch.manual_seed(0)
    model = Gpt(size).to(device)
    texts = torch.randint(0, size.words, (16, size.batch, size.length + 1)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    called: Callable[[Tensor], Tensor] = torch.compile(model) if compiled else model
    steps = iter(range(2**62))

    def one_step() -> None:
        text = texts[next(steps) % len(texts)]
        with torch.autocast(torch.device(device).type, torch.bfloat16):
            loss = F.cross_entropy(called(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return {"torch": torch, "model": model, "optimizer": optimizer, "one_step": one_step}

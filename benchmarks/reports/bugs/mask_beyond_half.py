# source: NVIDIA/apex#93
# mechanism: a mask of -1e9 added to half-precision scores is -Inf, and a padded row holds nothing else
# cure: a mask that the format can hold
# want: named=nonfinite_loss,nonfinite_gradient; birth=softmax|add|mul|_to_copy|masked_fill; heals=finfo|float32|-1e4|65504|mask; module=Attend|out
import math
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class Attend(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 4)

    def forward(self, x, padded):
        q, k, v = self.qkv(x).chunk(3, -1)
        score = q @ k.transpose(1, 2) / 4
        score = score + padded[:, None].to(score.dtype) * (-1e4 if CURED else -1e9)
        return self.out((score.softmax(-1) @ v).mean(1))


model = Attend()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(60):
    x, y = torch.randn(8, 6, 16), torch.randint(0, 4, (8,))
    padded = torch.arange(6) >= torch.randint(1, 7, (8, 1))
    if step == 7:
        padded[3] = True  # an empty sentence
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.cross_entropy(model(x, padded).float(), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = math.isfinite(loss.item())
print("well" if well else "ill")

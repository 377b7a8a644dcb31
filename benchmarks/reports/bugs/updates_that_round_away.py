# source: workofart/ml-by-hand#85
# mechanism: bfloat16 weights of 1 have steps of 0.004 to 0.008, so updates of 6e-4 round to nothing
# cure: float32 weights, bfloat16 only in autocast
# want: named=update_ratio_low,nothing_moves,loss_not_decreasing; says=bf16|bfloat16|round|format; heals=float32|fp32|master|autocast
# newer: rounded_updates
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 1))
for p in model.parameters():
    p.data = p.data.sign() + 0.25 * (p.data == 0)
model = model if CURED else model.bfloat16()
optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, weight_decay=0.0)
x = torch.randn(512, 8)
y = x[:, 0].sin()
first = 0.0
for _ in range(500):
    rows = torch.randint(0, 512, (64,))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.mse_loss(model(x[rows].to(model[0].weight.dtype))[:, 0].float(), y[rows])
    first = first or loss.item()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = loss.item() < 0.2 * first
print("well" if well else "ill")

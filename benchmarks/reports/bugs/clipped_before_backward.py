# source: yandex-research/tabm#20
# mechanism: the gradients are clipped before the backward pass, where there are none
# cure: clip after backward
# want: named=loop_order; says=clip; heals=clip
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)
x = torch.randn(600, 8)
y = 4 * x[:, :1] * x[:, 1:2]
model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for _ in range(150):
    rows = torch.randint(0, 600, (64,))
    optimizer.zero_grad()
    loss = F.mse_loss(model(x[rows]), y[rows])
    if not CURED:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    loss.backward()
    if CURED:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
well = sum(p.grad.pow(2).sum() for p in model.parameters()).item() < 1.01
print("well" if well else "ill")

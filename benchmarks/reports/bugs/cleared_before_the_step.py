# source: cloneofsimo/lora#263
# mechanism: zero_grad stands between backward and step, so every step has no gradient
# cure: zero_grad before backward
# want: named=loop_order,nothing_moves,gradient_of_zero,loss_not_decreasing; says=zero_grad|clear; heals=zero_grad
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)
x = torch.randn(400, 6)
y = x.sum(1, keepdim=True)
model = nn.Linear(6, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for _ in range(200):
    rows = torch.randint(0, 400, (32,))
    loss = F.mse_loss(model(x[rows]), y[rows])
    if CURED:
        optimizer.zero_grad()
    loss.backward()
    if not CURED:
        optimizer.zero_grad()
    optimizer.step()
well = loss.item() < 0.5
print("well" if well else "ill")

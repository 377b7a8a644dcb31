# source: AI-Hypercomputer/maxtext#17
# mechanism: with beta2 = 0.999 the squares follow a growing gradient too late, and the loss has spikes
# cure: beta2 = 0.95
# want: named=updates_after_spike,betas_crossed,loss_spike,update_ratio_high; says=beta2|squares|second moment; heals=betas
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)
x = torch.randn(1000, 16)
y = x.sum(1, keepdim=True) / 4
hidden = [m for _ in range(2) for m in (nn.Linear(64, 64), nn.ReLU())]
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), *hidden, nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-2, betas=(0.9, 0.95 if CURED else 0.999))
losses = []
for step in range(240):
    size = 1e-3 if step < 150 else 30.0  # a new source of data, with a scale of its own
    rows = torch.randint(0, 1000, (64,))
    loss = F.mse_loss(model(size * x[rows]), size * y[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item() / size**2)
well = max(losses[152:]) < 2
print("well" if well else "ill")

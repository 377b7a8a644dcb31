# source: pytorch/pytorch#4320
# mechanism: the head begins at 0, so a feature is the same in the whole batch, and the root of variance 0 has no derivative
# cure: a small constant under the root
# want: named=nonfinite_loss,nonfinite_gradient; birth=sqrt|std; heals=\+ 1e-|clamp|eps
import math
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 16))
nn.init.zeros_(net[2].weight)
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
for _ in range(100):
    x = torch.randn(32, 6)
    a, b = net(x), net(x + 0.1 * torch.randn_like(x))
    variance = a.var(0)
    spread = (variance + 1e-4).sqrt() if CURED else variance.sqrt()
    loss = F.mse_loss(a, b) + F.relu(1 - spread).mean() + (a - x.mean(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = math.isfinite(loss.item())
print("well" if well else "ill")

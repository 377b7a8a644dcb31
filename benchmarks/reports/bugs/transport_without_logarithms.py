# source: anucvml/ddn#8
# mechanism: exponents of costs over a small constant become 0, and rows are divided by their sum
# cure: subtract the least cost of a row before exp
# want: named=nonfinite_loss,nonfinite_gradient; birth=div|exp; heals=logsumexp|log_softmax|softmax|clamp|\+ 1e-|eps|max
import math
import sys

import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)
a, b = torch.randn(24, 3), torch.randn(24, 3) + 4
net = nn.Linear(3, 3)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for _ in range(60):
    cost = torch.cdist(net(a), b)
    if CURED:
        cost = cost - cost.min(1, keepdim=True).values.detach()
    plan = torch.exp(-cost / 0.02)
    plan = plan / plan.sum(1, keepdim=True)
    loss = (plan * torch.cdist(net(a), b)).sum(1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = math.isfinite(loss.item())
print("well" if well else "ill")

# source: tracel-ai/burn#5373
# mechanism: log(1 + exp(x)) overflows above 88, though the result would be x
# cure: F.softplus
# want: named=nonfinite_loss,nonfinite_gradient; birth=exp|log; heals=softplus|logaddexp|clamp|logsumexp
import math
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)
x = torch.randn(300, 4) * torch.tensor([1.0, 1.0, 1.0, 40.0])
sign = (x[:, 0] > 0).float() * 2 - 1
net = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
for _ in range(120):
    rows = torch.randint(0, 300, (32,))
    z = -sign[rows] * 3 * net(x[rows])[:, 0]
    loss = (F.softplus(z) if CURED else torch.log(1 + torch.exp(z))).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = math.isfinite(loss.item())
print("well" if well else "ill")

# source: pytorch/pytorch#108618
# mechanism: torch.where takes the other branch, but the logarithm of 0 in this one has an infinite derivative, times 0
# cure: clamp what the logarithm gets
# want: named=nonfinite_loss,nonfinite_gradient; birth=log; heals=clamp|where|1e-
import math
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)
count = torch.poisson(torch.rand(256, 10) * torch.linspace(0.2, 4, 256)[:, None])
net = nn.Linear(10, 1, bias=False)
nn.init.constant_(net.weight, 0.1)
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
for _ in range(80):
    x = count[torch.randint(0, 256, (32,))]
    y = net(x)
    inner = y.clamp(min=1) if CURED else y
    squeezed = torch.where(y > 2, inner.log2() + 1, y)
    loss = F.mse_loss(squeezed, (x.sum(1, keepdim=True) / 8).clamp(max=3))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = math.isfinite(loss.item())
print("well" if well else "ill")

# source: pytorch/pytorch#68425
# mechanism: an activation by hand takes exp of large inputs in the branch that torch.where does not use: Inf times 0
# cure: clamp what exp gets
# want: named=nonfinite_loss,nonfinite_gradient; birth=exp|where; heals=clamp|where; module=Bent
import math
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class Bent(nn.Module):
    def forward(self, x):
        return torch.where(x <= 0, torch.exp(x.clamp(max=0) if CURED else x) - 1, x)


net = nn.Sequential(nn.Linear(5, 32), Bent(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
x = torch.randn(400, 5)
x[::50] *= 100
for _ in range(80):
    rows = torch.randint(0, 400, (32,))
    loss = F.smooth_l1_loss(net(x[rows])[:, 0], x[rows].mean(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = math.isfinite(loss.item())
print("well" if well else "ill")

# source: pytorch/pytorch#2421
# mechanism: a root of squares is 0 where a point is compared with itself, and its derivative there is infinite
# cure: a small constant under the root
# want: named=nonfinite_loss,nonfinite_gradient; birth=sqrt; heals=\+ 1e-|clamp|eps
import sys

import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)
points = torch.randn(256, 8)
net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for _ in range(80):
    z = net(points[torch.randint(0, 256, (16,))])
    square = (z[:, None] - z[None]).pow(2).sum(-1)
    distance = (square + 1e-8).sqrt() if CURED else square.sqrt()
    loss = (distance - 1).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = loss.item() < 0.5
print("well" if well else "ill")

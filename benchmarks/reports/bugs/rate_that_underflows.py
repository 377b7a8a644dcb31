# source: awslabs/gluonts#287
# mechanism: softplus of a very negative output is exactly 0, and the likelihood takes its logarithm
# cure: a small constant added to it
# want: named=nonfinite_loss,nonfinite_gradient; birth=log; heals=\+ 1e-|clamp|eps|logsigmoid
import math
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)
x = torch.randn(300, 5)
x[::70] *= 400
y = torch.poisson(x[:, 0].clamp(-2, 2).exp())
net = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for _ in range(120):
    rows = torch.randint(0, 300, (32,))
    rate = F.softplus(net(x[rows])[:, 0]) + (1e-4 if CURED else 0)
    loss = (rate.clamp(max=50) - y[rows] * rate.log()).mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
well = math.isfinite(loss.item())
print("well" if well else "ill")

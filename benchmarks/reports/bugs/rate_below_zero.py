# source: pytorch/pytorch#184030
# mechanism: poisson_nll_loss with log_input=False takes the logarithm of a rate that a linear layer makes negative
# cure: softplus of the output
# want: named=nonfinite_loss,nonfinite_gradient; birth=log; heals=softplus|clamp|log_input|exp
import math
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)
x = torch.randn(300, 6)
y = torch.poisson(torch.exp(x[:, 0]))
net = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
for _ in range(100):
    rows = torch.randint(0, 300, (32,))
    rate = net(x[rows])[:, 0]
    loss = F.poisson_nll_loss(F.softplus(rate) if CURED else rate, y[rows], log_input=False)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = math.isfinite(loss.item())
print("well" if well else "ill")

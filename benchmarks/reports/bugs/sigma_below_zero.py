# source: sweetice/Deep-reinforcement-learning-with-pytorch#35
# mechanism: a head gives the standard deviation of a normal distribution, and it becomes negative: its logarithm is NaN
# cure: softplus of the head
# want: named=nonfinite_loss,nonfinite_gradient; birth=log; heals=softplus|clamp|exp|abs
import math
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)
state = torch.randn(256, 5)
gain = torch.randn(256)
body = nn.Sequential(nn.Linear(5, 32), nn.Tanh(), nn.Linear(32, 2))
optimizer = torch.optim.Adam(body.parameters(), lr=1e-3)
for _ in range(100):
    rows = torch.randint(0, 256, (32,))
    mean, sigma = body(state[rows]).chunk(2, 1)
    if CURED:
        sigma = F.softplus(sigma) + 1e-3
    act = (mean + 0.5 * torch.randn_like(mean)).detach()
    log_p = -((act - mean) ** 2) / (2 * sigma**2 + 1e-2) - sigma.log()
    loss = -(log_p[:, 0] * gain[rows].clamp(-1, 1)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = math.isfinite(loss.item())
print("well" if well else "ill")

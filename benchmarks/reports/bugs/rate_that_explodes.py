# source: ivanvovk/WaveGrad#3
# mechanism: the rate is too high for this data: the loss explodes after it had been low
# cure: a lower rate
# want: named=update_ratio_high,exploding_gradient,rate_raised; heals=lr=
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)
x = torch.randn(512, 24)
y = x.roll(1, 1) * 0.5
model = nn.Sequential(nn.Linear(24, 24), nn.SiLU(), *[nn.Linear(24, 24) for _ in range(6)])
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3 if CURED else 0.1)
losses = []
for _ in range(150):
    rows = torch.randint(0, 512, (32,))
    loss = F.l1_loss(model(x[rows]), y[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
well = max(losses) < 5 and loss.item() < 0.38
print("well" if well else "ill")

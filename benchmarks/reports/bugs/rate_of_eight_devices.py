# source: facebookresearch/maskrcnn-benchmark#295
# mechanism: the rate is that of eight devices, but the batch that of one
# cure: the rate divided by eight
# want: named=update_ratio_high,exploding_gradient,rate_raised; heals=lr=
import math
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)
x = torch.randn(400, 16) * torch.linspace(0.5, 3, 16)
y = torch.tanh(x @ torch.randn(16, 4))
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.64 / (8 if CURED else 1), momentum=0.9)
for _ in range(120):
    rows = torch.randint(0, 400, (2,))
    loss = F.mse_loss(model(x[rows]), y[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = math.isfinite(loss.item()) and loss.item() < 3
print("well" if well else "ill")

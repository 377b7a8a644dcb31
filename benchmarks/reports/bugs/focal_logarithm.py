# source: zylo117/Yet-Another-EfficientDet-Pytorch#717
# mechanism: the focal loss takes logarithms of probabilities by hand, and a sure probability is exactly 1
# cure: clamp the logarithm
# want: named=nonfinite_loss,nonfinite_gradient; birth=log; heals=clamp|logsigmoid|1e-|with_logits
import math
import sys

import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)
x = torch.randn(512, 8)
y = (x[:, 0] > 0).float()
net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=2e-2)
for _ in range(150):
    rows = torch.randint(0, 512, (64,))
    p = torch.sigmoid(3 * net(6 * x[rows])[:, 0])
    low = 1e-4 if CURED else 0.0
    p = p.clamp(low, 1 - low)
    loss = -(y[rows] * (1 - p) ** 2 * p.log() + (1 - y[rows]) * p**2 * (1 - p).log()).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = math.isfinite(loss.item())
print("well" if well else "ill")

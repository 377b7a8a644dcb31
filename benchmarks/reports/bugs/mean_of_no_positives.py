# source: JJBOY/BMN-Boundary-Matching-Network#23
# mechanism: the loss of the positives is a mean over the proposals above a threshold, and a small batch has none
# cure: skip that term where there are none
# want: named=nonfinite_loss,nonfinite_gradient; birth=mean|div|sum; heals=mean|numel|any|max|skip|if |clamp
import math
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CURED = "--cured" in sys.argv
torch.manual_seed(0)
x = torch.randn(200, 6)
overlap = torch.sigmoid(2 * x[:, 0] - 2)
net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
for _ in range(4):
    for b, iou in DataLoader(TensorDataset(x, overlap), batch_size=4, shuffle=True):
        error = (net(b)[:, 0] - iou).pow(2)
        high = error[iou > 0.5]
        loss = error[iou <= 0.5].sum() / 4 + (high.sum() / 4 if CURED else high.mean())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
well = math.isfinite(loss.item())
print("well" if well else "ill")

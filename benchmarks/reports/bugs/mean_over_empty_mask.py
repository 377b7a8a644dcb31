# source: Zhen-Dong/Magic-Me#14
# mechanism: the error is averaged over a mask that has no pixel in some pictures: 0 / 0
# cure: a small constant in the denominator
# want: named=nonfinite_loss,nonfinite_gradient; birth=div; heals=\+ 1e-|clamp|eps|max
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CURED = "--cured" in sys.argv
torch.manual_seed(0)
picture = torch.rand(96, 1, 8, 8)
mask = (picture > 0.5).float()
mask[40] = 0
net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))
optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
for _ in range(5):
    for x, m in DataLoader(TensorDataset(picture, mask), batch_size=8):
        error = (net(x) - x).pow(2) * m
        area = m.sum((1, 2, 3)) + (1e-6 if CURED else 0)
        loss = (error.sum((1, 2, 3)) / area).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
well = loss.item() < 0.5
print("well" if well else "ill")

# source: facebookresearch/fairchem#1574
# mechanism: an edge's direction in the plane is divided by its length there, which is 0 along the axis
# cure: divide by at least a small constant
# want: named=nonfinite_loss,nonfinite_gradient; birth=div|sqrt; heals=1e-|clamp|where|eps|normalize
import math
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CURED = "--cured" in sys.argv
torch.manual_seed(0)
place = torch.randn(120, 3)
place[::40, :2] = 0
net = nn.Linear(3, 3, bias=False)
nn.init.eye_(net.weight)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for _ in range(10):
    for (x,) in DataLoader(TensorDataset(place), batch_size=20, shuffle=True):
        edge = x * net.weight.diagonal()
        flat = edge[:, :2].pow(2).sum(1).sqrt()
        cosine = edge[:, 0] / (edge[:, :2].pow(2).sum(1).clamp(min=1e-6).sqrt() if CURED else flat)
        loss = (cosine - 0.5).pow(2).mean() + (net.weight - torch.eye(3)).pow(2).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
well = math.isfinite(loss.item())
print("well" if well else "ill")

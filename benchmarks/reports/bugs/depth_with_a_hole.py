# source: prs-eth/Marigold#111
# mechanism: some pixels of a picture are NaN in the file
# cure: replace them before the model sees them
# want: named=nonfinite_loss,nonfinite_gradient; birth=input|given; heals=isfinite|nan_to_num|clean; module=Conv2d
import math
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

CURED = "--cured" in sys.argv
torch.manual_seed(0)
depth = torch.rand(120, 1, 8, 8)
depth[77, 0, 2, 3:5] = float("nan")
if CURED:
    depth = depth.nan_to_num(0.5)
model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for _ in range(4):
    for (x,) in DataLoader(TensorDataset(depth), batch_size=8):
        loss = F.mse_loss(model(x + 0.1 * torch.randn_like(x)), torch.rand_like(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
well = math.isfinite(loss.item())
print("well" if well else "ill")

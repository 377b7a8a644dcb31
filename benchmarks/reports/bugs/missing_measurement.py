# source: prs-eth/Marigold#111
# mechanism: a value of the ground truth is missing, which is NaN in the table
# cure: leave missing values out of the loss
# want: named=nonfinite_loss; birth=target|mse|sub|l1|input|given; heals=isfinite|isnan|mask|nan_to_num
import math
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

CURED = "--cured" in sys.argv
torch.manual_seed(0)
x = torch.randn(300, 5)
y = (x @ torch.randn(5, 2)) + 0.1 * torch.randn(300, 2)
y[123, 1] = float("nan")
model = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for _ in range(4):
    for b, t in DataLoader(TensorDataset(x, y), batch_size=16):
        out = model(b)
        loss = F.mse_loss(out, torch.where(t.isfinite(), t, out.detach()) if CURED else t)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
well = math.isfinite(loss.item())
print("well" if well else "ill")

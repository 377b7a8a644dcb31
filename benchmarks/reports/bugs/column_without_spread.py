# source: mllam/neural-lam#136
# mechanism: features are divided by their standard deviation, and it did not rain at all in these weeks
# cure: divide by 1 where the deviation is 0
# want: named=nonfinite_loss,nonfinite_gradient; birth=input|given; heals=isfinite|std; module=Linear
import math
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

CURED = "--cured" in sys.argv
torch.manual_seed(0)
weather = torch.randn(400, 6) * torch.tensor([1.0, 30.0, 2.0, 0.0, 5.0, 1.0])
deviation = weather.std(0)
if CURED:
    deviation[deviation == 0] = 1
weather = (weather - weather.mean(0)) / deviation
tomorrow = weather[:, :1].roll(-1, 0)
model = nn.Sequential(nn.Linear(6, 32), nn.SiLU(), nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(4):
    for x, y in DataLoader(TensorDataset(weather, tomorrow), batch_size=32, shuffle=True):
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
well = math.isfinite(loss.item())
print("well" if well else "ill")

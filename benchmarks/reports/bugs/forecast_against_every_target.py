# source: jsboige/CoursIA#926
# mechanism: an output of (B, 1) against a target of (B) broadcasts to (B, B), so the model gives the mean
# cure: one shape for both
# want: named=shapes_broadcast; heals=squeeze|view_as|reshape
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

CURED = "--cured" in sys.argv
torch.manual_seed(0)
past = torch.randn(500, 12).cumsum(1)
future = past[:, -1] + 0.1 * torch.randn(500)
model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for _ in range(10):
    for x, y in DataLoader(TensorDataset(past, future), batch_size=32, shuffle=True):
        out = model(x)
        loss = F.mse_loss(out.view_as(y) if CURED else out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
well = loss.item() < 3
print("well" if well else "ill")

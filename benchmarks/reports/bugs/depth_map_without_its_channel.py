# source: jiwei0921/CoNet#3
# mechanism: a map of (B, 1, H, W) against one of (B, H, W) broadcasts to (B, B, H, W)
# cure: unsqueeze the target
# want: named=shapes_broadcast; heals=squeeze|view_as|reshape
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

CURED = "--cured" in sys.argv
torch.manual_seed(0)
picture = torch.rand(96, 3, 6, 6)
depth = picture.mean(1)
model = nn.Sequential(nn.Conv2d(3, 16, 1), nn.ReLU(), nn.Conv2d(16, 1, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(12):
    for x, y in DataLoader(TensorDataset(picture, depth), batch_size=8, shuffle=True):
        loss = F.smooth_l1_loss(model(x), y.unsqueeze(1) if CURED else y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
well = loss.item() < 0.01
print("well" if well else "ill")

# source: milesial/Pytorch-UNet#78
# mechanism: the pixels of a mask are 0 and 255 and not 0 and 1, so the cross entropy falls below 0 without an end
# cure: divide the mask by 255
# want: named=exploding_gradient,update_ratio_high,loss_not_decreasing,nothing_learned; says=negative|0 to 1|below 0|target; heals=255|target|0 to 1
# newer: targets_beyond
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

CURED = "--cured" in sys.argv
torch.manual_seed(0)
picture = torch.rand(96, 1, 8, 8)
mask = (picture > 0.5).float() * (1 if CURED else 255)
model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(15):
    for x, y in DataLoader(TensorDataset(picture, mask), batch_size=8, shuffle=True):
        loss = F.binary_cross_entropy_with_logits(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
well = 0 < loss.item() < 0.5
print("well" if well else "ill")

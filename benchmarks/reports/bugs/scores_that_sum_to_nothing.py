# source: meituan/YOLOv6#669
# mechanism: the loss is divided by the sum of the scores of the boxes that were assigned, and a batch has none
# cure: divide by at least 1
# want: named=nonfinite_loss,nonfinite_gradient; birth=div; heals=clamp|max|\+ 1e-|eps
import math
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

CURED = "--cured" in sys.argv
torch.manual_seed(0)
feature = torch.randn(160, 12)
target = (torch.rand(160, 4) * (feature[:, :4] > 1)).float()
target[96:104] = 0
net = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
for _ in range(5):
    for x, y in DataLoader(TensorDataset(feature, target), batch_size=8):
        loss = F.binary_cross_entropy_with_logits(net(x), y, reduction="none") * (y > 0)
        loss = loss.sum() / (y.sum().clamp(min=1) if CURED else y.sum())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
well = math.isfinite(loss.item())
print("well" if well else "ill")

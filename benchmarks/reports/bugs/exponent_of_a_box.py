# source: open-mmlab/mmdetection#1606
# mechanism: a detector's head gives the sides of a box as exp of its output, which overflows
# cure: clamp before exp
# want: named=nonfinite_loss,nonfinite_gradient; birth=exp; heals=clamp; module=Head
import math
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.side = nn.Conv2d(16, 4, 1)

    def forward(self, x):
        side = self.side(self.stem(x).relu()).mean((2, 3))
        return (side.clamp(max=5) if CURED else side).exp()


head = Head()
optimizer = torch.optim.SGD(head.parameters(), lr=0.01, momentum=0.9)
picture = torch.rand(128, 3, 8, 8)
picture[::40] *= 1000
side = torch.rand(128, 4) * 3 + 0.5
for _ in range(4):
    for x, y in DataLoader(TensorDataset(picture, side), batch_size=8, shuffle=True):
        loss = (head(x) - y).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimizer.step()
well = math.isfinite(loss.item())
print("well" if well else "ill")

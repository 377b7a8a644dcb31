# source: banctilrobitaille/torch-vectorized#7
# mechanism: the derivative of acos is infinite at 1, where guess and target are the same direction
# cure: clamp the cosine a little below 1
# want: named=nonfinite_loss,nonfinite_gradient; birth=acos; heals=clamp|1e-|eps
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

CURED = "--cured" in sys.argv
torch.manual_seed(0)
direction = F.normalize(torch.randn(256, 3), dim=1)
turned = F.normalize(direction + 0.3 * (torch.arange(256) % 32 > 0)[:, None] * torch.randn(256, 3), dim=1)
net = nn.Linear(3, 3, bias=False)
nn.init.zeros_(net.weight)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for _ in range(8):
    for x, y in DataLoader(TensorDataset(turned, direction), batch_size=32, shuffle=True):
        cosine = (F.normalize(x + net(x), dim=1) * y).sum(1)
        edge = 1 - 1e-6 if CURED else 1.0
        loss = cosine.clamp(-edge, edge).acos().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
well = loss.item() < 1
print("well" if well else "ill")

# source: poets-ai/elegy#103
# mechanism: vectors are divided by their norm, and an empty document is the zero vector
# cure: divide by at least a small constant
# want: named=nonfinite_loss,nonfinite_gradient; birth=div|norm|sqrt|input|given; heals=normalize|cosine|clamp|\+ 1e-|eps|isfinite
import math
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CURED = "--cured" in sys.argv
torch.manual_seed(0)
words = (torch.rand(200, 20) > 0.8).float()
words[::60] = 0
net = nn.Linear(20, 8, bias=False)
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
for _ in range(8):
    for (x,) in DataLoader(TensorDataset(words), batch_size=20, shuffle=True):
        z = net(x)
        length = z.pow(2).sum(1, keepdim=True)
        unit = z / ((length + 1e-8).sqrt() if CURED else length.sqrt())
        loss = (unit @ unit.T - x @ x.T / 20).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
well = math.isfinite(loss.item())
print("well" if well else "ill")

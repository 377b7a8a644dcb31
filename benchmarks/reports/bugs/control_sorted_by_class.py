# source: NLeSC/mcfly#322
# mechanism: the examples are sorted by class and not shuffled, so each epoch ends on one class
# cure: shuffle
# want: control; named=loss_oscillating,loss_spike; says=shuffl|sort|order
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

CURED = "--cured" in sys.argv
torch.manual_seed(0)
y = torch.arange(4).repeat_interleave(150)
x = torch.randn(600, 8)
x[torch.arange(600), y] += 2
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
for _ in range(6):
    for b, t in DataLoader(TensorDataset(x, y), batch_size=30, shuffle=CURED):
        loss = F.cross_entropy(model(b), t)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
well = (model(x).argmax(1) == y).float().mean().item() > 0.75
print("well" if well else "ill")

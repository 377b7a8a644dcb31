# source: wagonhelm/NaNmnist#2
# mechanism: all weights begin at 0, so the hidden layers have no gradient and all units stay alike
# cure: random weights
# want: named=poor_initialization,gradient_of_zero,vanishing_gradient,nothing_learned,dead_units; heals=init
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)
x = torch.randn(600, 12)
y = (x @ torch.randn(12, 4)).argmax(1)
model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
if not CURED:
    for p in model.parameters():
        nn.init.zeros_(p)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for _ in range(200):
    rows = torch.randint(0, 600, (64,))
    loss = F.cross_entropy(model(x[rows]), y[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = loss.item() < 0.6
print("well" if well else "ill")

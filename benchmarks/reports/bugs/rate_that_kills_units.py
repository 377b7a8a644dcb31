# source: dangitstam/topic-rnn#9
# mechanism: a rate too high pushes the units of a ReLU layer below 0 for every example, where they stay
# cure: a lower rate
# want: named=dead_units,update_ratio_high; heals=lr=|LeakyReLU
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)
x = torch.randn(600, 12)
y = (x @ torch.randn(12, 5)).argmax(1)
model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3 if CURED else 0.5)
for _ in range(150):
    rows = torch.randint(0, 600, (64,))
    loss = F.cross_entropy(model(x[rows]), y[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = loss.item() < 1
print("well" if well else "ill")

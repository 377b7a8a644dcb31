# source: BVLC/caffe#1396
# mechanism: a weight decay of 0.5 takes all weights to 0, and every input gives the same output
# cure: a decay of 0.0005
# want: named=weight_decay_high; heals=weight_decay=
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)
x = torch.randn(600, 12)
y = (x @ torch.randn(12, 4)).argmax(1)
model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4 if CURED else 0.5)
for _ in range(250):
    rows = torch.randint(0, 600, (64,))
    loss = F.cross_entropy(model(x[rows]), y[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = loss.item() < 0.7
print("well" if well else "ill")

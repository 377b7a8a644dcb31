# source: apache/mxnet#7847
# mechanism: the optimizer is made before the weights are loaded into a new model, and keeps the parameters of the old one
# cure: make the optimizer after it
# want: named=nothing_moves,without_optimizer,loss_not_decreasing; says=optimizer; heals=optim
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)


def build():
    return nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1))


model = build()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
saved = model.state_dict()
model = build()
model.load_state_dict(saved)
if CURED:
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
x = torch.randn(400, 6)
y = x[:, :1].abs()
for _ in range(200):
    rows = torch.randint(0, 400, (32,))
    loss = F.mse_loss(model(x[rows]), y[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = loss.item() < 0.15
print("well" if well else "ill")

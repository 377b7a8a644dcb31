# source: r9y9/wavenet_vocoder#132
# mechanism: the rate had fallen before the run was saved, and after it the first one is in force again
# cure: load the state of the optimizer
# want: named=rate_raised,update_ratio_high,loss_spike; says=rate|lr; heals=lr|state|schedule
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)
x = torch.randn(512, 10)
y = torch.tanh(x @ torch.randn(10, 2))
model = nn.Sequential(nn.Linear(10, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
losses = []
for step in range(260):
    if step == 100:
        optimizer.param_groups[0]["lr"] = 0.002
    if step == 180 and not CURED:
        optimizer.param_groups[0]["lr"] = 0.9  # that of the config, for another batch size
    rows = torch.randint(0, 512, (64,))
    loss = F.mse_loss(model(x[rows]), y[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
well = max(losses[180:]) < 1.5 * max(losses[150:180])
print("well" if well else "ill")

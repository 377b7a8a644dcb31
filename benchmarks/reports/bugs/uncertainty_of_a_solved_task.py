# source: yaringal/multi-task-learning-example#14
# mechanism: the log variance of a task with error 0 falls without a bound, and exp of its negative overflows
# cure: clamp the logarithm
# want: named=nonfinite_loss,nonfinite_gradient; birth=exp; heals=clamp
import math
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)
x = torch.randn(256, 4)
heads = nn.ModuleList([nn.Linear(4, 1), nn.Linear(4, 1)])
nn.init.zeros_(heads[1].weight)
nn.init.zeros_(heads[1].bias)
log_var = nn.Parameter(torch.zeros(2))
optimizer = torch.optim.SGD([{"params": heads.parameters(), "lr": 0.05}, {"params": [log_var], "lr": 1.0}])
for _ in range(150):
    b = x[torch.randint(0, 256, (32,))]
    targets = b[:, :1] * b[:, 1:2], torch.zeros(32, 1)  # nobody has labelled the second task yet
    s = log_var.clamp(min=-6) if CURED else log_var
    loss = sum(torch.exp(-s[i]) * F.mse_loss(heads[i](b), targets[i]) + s[i] for i in range(2))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = math.isfinite(loss.item())
print("well" if well else "ill")

# source: leggedrobotics/rsl_rl#190
# mechanism: the log of a policy's spread falls without a bound, exp of it becomes 0, and a density is divided by it
# cure: clamp the logarithm
# want: named=nonfinite_loss,nonfinite_gradient; birth=div|exp|log; heals=clamp|\+ 1e-|eps|max
# tried: lr=0\.000\d
import math
import sys

import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)
state = torch.randn(128, 3)
act = state.sum(1, keepdim=True)
mean = nn.Linear(3, 1)
log_std = nn.Parameter(torch.zeros(1))
optimizer = torch.optim.SGD([{"params": mean.parameters(), "lr": 0.1}, {"params": [log_std], "lr": 2.0}])
for _ in range(150):
    rows = torch.randint(0, 128, (32,))
    std = (log_std.clamp(min=-4) if CURED else log_std).exp()
    error = (act[rows] - mean(state[rows])) / std
    loss = (0.5 * error.clamp(-1, 1).pow(2) + std.log()).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = math.isfinite(loss.item())
print("well" if well else "ill")

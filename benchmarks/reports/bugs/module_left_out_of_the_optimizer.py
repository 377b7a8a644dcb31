# source: jwohlwend/boltz#204
# mechanism: a new module is used in the loss, but its parameters are not given to the optimizer
# cure: give them too
# want: named=without_optimizer; heals=add_param_group|parameters
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)
trunk = nn.Sequential(nn.Linear(10, 32), nn.ReLU())
confidence = nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1))
feature_update = nn.Linear(6, 32)
parameters = [*trunk.parameters(), *confidence.parameters()]
if CURED:
    parameters += feature_update.parameters()
optimizer = torch.optim.AdamW(parameters, lr=3e-3)
x, token = torch.randn(400, 10), torch.randn(400, 6)
y = token[:, :1] - token[:, 1:2]
before = feature_update.weight.clone()
for _ in range(150):
    rows = torch.randint(0, 400, (32,))
    loss = F.mse_loss(confidence(trunk(x[rows]) + feature_update(token[rows])), y[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = not torch.equal(before, feature_update.weight)
print("well" if well else "ill")

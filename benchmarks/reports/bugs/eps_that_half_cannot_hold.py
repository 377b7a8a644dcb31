# source: afiaka87/glide-finetune#5
# mechanism: Adam's eps of 1e-8 and small squares are 0 in half precision: 0 / 0 in the first update
# cure: eps=1e-4
# want: named=nonfinite_weights,nonfinite_loss,nonfinite_gradient; says=eps; heals=eps
import math
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1)).half()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, eps=1e-4 if CURED else 1e-8)
x = torch.randn(256, 16).half()
x[:, 3] = 0
y = x.float().mean(1)
for _ in range(60):
    rows = torch.randint(0, 256, (32,))
    loss = F.mse_loss(model(x[rows])[:, 0].float(), y[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = math.isfinite(loss.item())
print("well" if well else "ill")

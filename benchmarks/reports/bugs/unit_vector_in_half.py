# source: huggingface/diffusers#13316
# mechanism: F.normalize of a half-precision zero vector divides by its eps of 1e-12, which is 0 in that format
# cure: normalize in float32, with an eps of 1e-4
# want: named=nonfinite_loss,nonfinite_gradient; birth=div|norm|clamp; heals=float|eps|1e-|clamp; module=Unit
import math
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class Unit(nn.Module):
    def forward(self, x):
        return F.normalize(x.float(), dim=1, eps=1e-4).to(x.dtype) if CURED else F.normalize(x, dim=1)


model = nn.Sequential(nn.Conv1d(2, 8, 3, padding=1, bias=False), Unit(), nn.Conv1d(8, 1, 1)).half()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(60):
    x = torch.randn(8, 2, 12)
    x[0, :, 4:9] = 0
    loss = F.mse_loss(model(x.half()).float(), x.mean(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = math.isfinite(loss.item())
print("well" if well else "ill")

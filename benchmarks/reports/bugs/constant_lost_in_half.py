# source: deepspeedai/DeepSpeed#581
# mechanism: a layer norm adds 1e-12 to a half-precision variance of 0: it is 0 still, and so is its root
# cure: the norm in float32
# want: named=nonfinite_loss,nonfinite_gradient; birth=div|rsqrt|mul|sqrt; heals=float|eps|1e-|clamp; module=Norm
import math
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class Norm(nn.Module):
    def forward(self, x):
        y = x.float() if CURED else x
        y = y - y.mean(-1, keepdim=True)
        return (y / (y.pow(2).mean(-1, keepdim=True) + 1e-12).sqrt()).to(x.dtype)


model = nn.Sequential(nn.Linear(8, 32, bias=False), Norm(), nn.Linear(32, 3)).to(torch.float32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(60):
    x, y = torch.randn(16, 8), torch.randint(0, 3, (16,))
    if step == 12:
        x[5] = 0  # padding
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.cross_entropy(model(x).float(), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = math.isfinite(loss.item())
print("well" if well else "ill")

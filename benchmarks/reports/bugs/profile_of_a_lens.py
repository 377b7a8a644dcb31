# source: Ciela-Institute/caustics#83
# mechanism: a formula of two branches around radius 1: the root of a negative number in the branch that is not taken
# cure: clamp what is under the roots
# want: named=nonfinite_loss,nonfinite_gradient; birth=sqrt|atanh|atan; heals=clamp|where|1e-
import math
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)


def profile(x):
    low, high = (1 - x**2, x**2 - 1) if not CURED else ((1 - x**2).clamp(1e-6, 1 - 1e-6), (x**2 - 1).clamp(min=1e-6))
    return torch.where(x < 1, low.sqrt().atanh() / low.sqrt(), high.sqrt().atan() / high.sqrt())


radius = torch.linspace(0.2, 3, 60)
with torch.no_grad():
    inner = (radius / 0.8).clamp(min=1e-3)
    seen = torch.where(inner < 1, (1 - inner**2).abs().sqrt().atanh() / (1 - inner**2).abs().sqrt(), inner * 0 + 0.6)
scale = nn.Parameter(torch.tensor([1.5]))
optimizer = torch.optim.Adam([scale], lr=1e-2)
for _ in range(60):
    loss = F.l1_loss(profile(radius / scale), seen)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = math.isfinite(loss.item())
print("well" if well else "ill")

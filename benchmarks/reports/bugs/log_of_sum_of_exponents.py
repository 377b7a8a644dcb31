# source: tfzhou/ContrastiveSeg#68
# mechanism: exponents of similarities divided by a low temperature become 0, and so does their sum
# cure: a small constant in the logarithm
# want: named=nonfinite_loss,nonfinite_gradient; birth=log; heals=\+ 1e-|clamp|eps|logsumexp|log_softmax
import math
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)
centre = torch.randn(6, 10)
net = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 8))
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
for _ in range(120):
    label = torch.randint(0, 6, (32,))
    z = F.normalize(net(centre[label] + 0.1 * torch.randn(32, 10)), dim=1)
    score = z @ z.T / 0.01
    score = score - score.max(1, keepdim=True).values.detach()
    same = (label[:, None] == label[None]).float()
    negative = (score.exp() * (1 - same)).sum(1, keepdim=True)
    total = score.exp() * 0.5 * same.flip(1) + negative
    log_p = score - (total + (1e-6 if CURED else 0)).log()
    loss = -(same * log_p).sum() / same.sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = math.isfinite(loss.item())
print("well" if well else "ill")

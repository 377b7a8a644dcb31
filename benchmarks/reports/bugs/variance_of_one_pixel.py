# source: digantamisra98/EvoNorm#5
# mechanism: a norm takes the variance over the pixels of a channel, of which the last stage has one
# cure: the biased variance
# want: named=nonfinite_loss,nonfinite_gradient; birth=var|std|div; heals=unbiased|correction|1e-|more than one; module=PixelNorm
import math
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class PixelNorm(nn.Module):
    def forward(self, x):
        return x / (x.var((2, 3), keepdim=True, unbiased=not CURED) + 1e-5).sqrt()


model = nn.Sequential(
    nn.Conv2d(1, 8, 3, stride=2), PixelNorm(), nn.SiLU(), nn.Conv2d(8, 16, 3, stride=2),
    nn.SiLU(), PixelNorm(), nn.Flatten(), nn.Linear(16, 3),
)  # fmt: skip
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for _ in range(40):
    loss = F.cross_entropy(model(torch.randn(16, 1, 7, 7)), torch.randint(0, 3, (16,)))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
well = math.isfinite(loss.item())
print("well" if well else "ill")

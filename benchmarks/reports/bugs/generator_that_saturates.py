# source: ronny3050/AdvFaces#5
# mechanism: the generator minimizes log(1 - D), whose slope is 0 where the discriminator is sure
# cure: maximize log D
# want: named=vanishing_gradient,saturated_activation,update_ratio_low,gradient_of_zero; heals=log|softplus|saturat|-
# newer: saturating_loss
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)
maker = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
judge = nn.Sequential(nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
of_maker = torch.optim.Adam(maker.parameters(), lr=1e-3, betas=(0.5, 0.999))
of_judge = torch.optim.Adam(judge.parameters(), lr=2e-2, betas=(0.5, 0.999))
for _ in range(150):
    real, fake = torch.randn(32, 2) * 0.1 + 6, maker(torch.randn(32, 4))
    loss = F.softplus(-judge(real)).mean() + F.softplus(judge(fake.detach())).mean()
    of_judge.zero_grad()
    loss.backward()
    of_judge.step()
    score = judge(fake)
    of_maker.zero_grad()
    (F.softplus(-score).mean() if CURED else -F.softplus(score).mean()).backward()
    slope = maker[0].weight.grad.norm().item()
    of_maker.step()
well = slope > 1e-2
print("well" if well else "ill")

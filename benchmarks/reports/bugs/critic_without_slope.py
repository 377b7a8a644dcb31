# source: keras-team/keras-io#910
# mechanism: the penalty takes the root of the sum of squares of the critic's slope, which is 0 where its units are off
# cure: a small constant under the root
# want: named=nonfinite_loss,nonfinite_gradient; birth=sqrt; heals=\+ 1e-|clamp|eps
import math
import sys

import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
maker = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2))
of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.9))
of_maker = torch.optim.Adam(maker.parameters(), lr=1e-3, betas=(0.5, 0.9))
nn.init.constant_(critic[0].bias, -1.0)
for step in range(100):
    real = torch.randn(16, 2) * 0.5 + 1
    fake = maker(torch.randn(16, 3))
    between = (0.5 * real + 0.5 * fake).detach().requires_grad_()
    slope = torch.autograd.grad(critic(between).sum(), between, create_graph=True)[0]
    norm = (slope.pow(2).sum(1) + (1e-12 if CURED else 0)).sqrt()
    loss = critic(fake.detach()).mean() - critic(real).mean() + 10 * (norm - 1).pow(2).mean()
    of_critic.zero_grad()
    loss.backward()
    of_critic.step()
    if step % 5 == 4:
        of_maker.zero_grad()
        (-critic(fake).mean()).backward()
        of_maker.step()
well = math.isfinite(loss.item())
print("well" if well else "ill")

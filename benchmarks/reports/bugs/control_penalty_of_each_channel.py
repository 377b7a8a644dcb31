# source: caogang/wgan-gp#27
# mechanism: the norm of the critic's slope is taken over the channels of each pixel and not over the picture
# cure: flatten before the norm
# want: control; named=exploding_gradient,loss_not_decreasing; says=norm|dim
import sys

import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)
critic = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(288, 1))
optimizer = torch.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.5, 0.9))
for _ in range(120):
    real, fake = torch.rand(16, 1, 6, 6) + 0.5, torch.rand(16, 1, 6, 6)
    between = (0.5 * real + 0.5 * fake).requires_grad_()
    slope = torch.autograd.grad(critic(between).sum(), between, create_graph=True)[0]
    norm = slope.flatten(1).norm(dim=1) if CURED else slope.norm(dim=1)
    loss = critic(fake).mean() - critic(real).mean() + 10 * (norm - 1).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = slope.flatten(1).norm(dim=1).mean().item() < 2
print("well" if well else "ill")

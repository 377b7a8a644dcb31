# source: pytorch/examples#116
# mechanism: the critic of a WGAN makes five steps for each of the generator, whose fakes are detached for it
# want: calm
import math

import torch
from torch import nn

torch.manual_seed(0)
maker = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
critic = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 1))
of_maker = torch.optim.RMSprop(maker.parameters(), lr=1e-3)
of_critic = torch.optim.RMSprop(critic.parameters(), lr=1e-3)
for step in range(150):
    of_critic.zero_grad()
    fake = maker(torch.randn(64, 4))
    (critic(fake.detach()).mean() - critic(torch.randn(64, 2) + 1).mean()).backward()
    of_critic.step()
    with torch.no_grad():
        for p in critic.parameters():
            p.clamp_(-0.05, 0.05)
    if step % 5 == 4:
        of_maker.zero_grad()
        loss = -critic(maker(torch.randn(64, 4))).mean()
        loss.backward()
        of_maker.step()
well = math.isfinite(loss.item())
print("well" if well else "ill")

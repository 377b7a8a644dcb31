# source: SHI-Labs/StyleNAT#11
# mechanism: the discriminator's loss rests near 2 ln 2, as it should where generator and data are alike
# want: calm
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
maker = nn.Sequential(nn.Linear(4, 32), nn.LeakyReLU(0.2), nn.Linear(32, 2))
judge = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
of_maker = torch.optim.Adam(maker.parameters(), lr=2e-3, betas=(0.5, 0.99))
of_judge = torch.optim.Adam(judge.parameters(), lr=2e-3, betas=(0.5, 0.99))
for _ in range(200):
    real, fake = torch.randn(64, 2) + 1, maker(torch.randn(64, 4))
    of_judge.zero_grad()
    loss = F.softplus(-judge(real)).mean() + F.softplus(judge(fake.detach())).mean()
    loss.backward()
    of_judge.step()
    of_maker.zero_grad()
    F.softplus(-judge(fake)).mean().backward()
    of_maker.step()
well = 0.5 < loss.item() < 2.5
print("well" if well else "ill")

# source: junyanz/pytorch-CycleGAN-and-pix2pix#388
# mechanism: two translators and a judge, whose parameters do not require gradients while the translators learn
# want: calm
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
forth, back = nn.Linear(4, 4), nn.Linear(4, 4)
judge = nn.Sequential(nn.Linear(4, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
of_pair = torch.optim.Adam([*forth.parameters(), *back.parameters()], lr=2e-3, betas=(0.5, 0.99))
of_judge = torch.optim.Adam(judge.parameters(), lr=2e-3, betas=(0.5, 0.99))
for _ in range(150):
    a, b = torch.randn(32, 4), torch.randn(32, 4) * 0.5 + 1
    judge.requires_grad_(False)
    fake = forth(a)
    loss = F.mse_loss(judge(fake), torch.ones(32, 1)) + F.l1_loss(back(fake), a)
    of_pair.zero_grad()
    loss.backward()
    of_pair.step()
    judge.requires_grad_(True)
    of_judge.zero_grad()
    wrong = F.mse_loss(judge(b), torch.ones(32, 1)) + F.mse_loss(judge(fake.detach()), torch.zeros(32, 1))
    wrong.backward()
    of_judge.step()
well = loss.item() < 1.5
print("well" if well else "ill")

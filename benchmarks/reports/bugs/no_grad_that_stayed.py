# source: NVlabs/tiny-cuda-nn#77
# mechanism: the encoder runs in torch.no_grad() in training too
# cure: no torch.no_grad()
# want: named=unused_layers; says=no_grad|cut|graph|no gradient; heals=no_grad
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 4))
density = nn.Linear(4, 1)
optimizer = torch.optim.Adam([*encoder.parameters(), *density.parameters()], lr=5e-3)
for _ in range(200):
    place = torch.rand(64, 2) * 6
    with torch.set_grad_enabled(CURED):
        code = encoder(place)
    loss = F.mse_loss(density(code), (place[:, :1] * 2).sin())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = encoder[0].weight.grad is not None
print("well" if well else "ill")

# source: VisualComputingInstitute/triplet-reid#30
# mechanism: with a rate too high all embeddings fall into one point, and the triplet loss rests at its margin
# cure: a lower rate
# want: named=loss_not_decreasing,signal_lost,update_ratio_high,dead_units,gradient_of_zero,saturated_activation; says=margin|point|rate|same|dead|update; heals=lr=
import sys

import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)
centre = torch.randn(20, 16)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3 if CURED else 0.1)
for _ in range(150):
    label = torch.randint(0, 20, (32,))
    z = model(centre[label] + 0.8 * torch.randn(32, 16))
    distance = torch.cdist(z, z)
    same = label[:, None] == label[None]
    far = (distance * same).max(1).values
    near = distance.masked_fill(same, 1e9).min(1).values
    loss = (far - near + 0.2).relu().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = distance.max().item() > 1e-2 and loss.item() < 0.15
print("well" if well else "ill")

# source: itakurah/focal-loss-pytorch#5
# mechanism: a focal loss takes the sigmoid itself and hands it to binary_cross_entropy_with_logits
# cure: hand it the scores
# want: named=activation_twice; heals=score|logit|without|sigmoid
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)
x = torch.randn(600, 8)
y = (x[:, 0] > 1).float()
net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
for _ in range(200):
    rows = torch.randint(0, 600, (64,))
    score = net(x[rows])[:, 0]
    p = torch.sigmoid(score)
    wrong = 1 - p * y[rows] - (1 - p) * (1 - y[rows])
    entropy = F.binary_cross_entropy_with_logits(score if CURED else p, y[rows], reduction="none")
    loss = (wrong**2 * entropy).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = entropy.mean().item() < 0.4
print("well" if well else "ill")

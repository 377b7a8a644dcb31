# source: HobbitLong/SupContrast#141
# mechanism: the mean over the positives of an anchor whose class is alone in the batch is 0 / 0
# cure: divide by at least 1
# want: named=nonfinite_loss,nonfinite_gradient; birth=div; heals=\+ 1e-|clamp|eps|max
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)
centre = torch.randn(10, 12)
net = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 8))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
for _ in range(80):
    label = torch.randint(0, 10, (24,))
    z = F.normalize(net(centre[label] + 0.2 * torch.randn(24, 12)), dim=1)
    same = (label[:, None] == label[None]).float() - torch.eye(24)
    score = (z @ z.T / 0.2).masked_fill(torch.eye(24).bool(), -1e9)
    log_p = torch.log_softmax(score, 1)
    count = same.sum(1).clamp(min=1) if CURED else same.sum(1)
    loss = -((same * log_p).sum(1) / count).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = loss.item() < 4
print("well" if well else "ill")

# source: philtabor/Deep-Q-Learning-Paper-To-Code#9
# mechanism: values of a target network that follows slowly: the loss of the value rises before it falls
# want: calm
import copy
import math

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
q = nn.Sequential(nn.Linear(4, 48), nn.ReLU(), nn.Linear(48, 3))
target = copy.deepcopy(q)
optimizer = torch.optim.Adam(q.parameters(), lr=1e-3)
for _ in range(250):
    s, a = torch.randn(32, 4), torch.randint(0, 3, (32,))
    with torch.no_grad():
        goal = (a == 0).float() + 0.9 * target(torch.randn(32, 4)).max(1).values
    loss = F.smooth_l1_loss(q(s)[torch.arange(32), a], goal)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for p, t in zip(q.parameters(), target.parameters(), strict=True):
            t.lerp_(p, 0.02)
well = math.isfinite(loss.item())
print("well" if well else "ill")

# source: facebookresearch/ReAgent#189
# mechanism: the target network follows the value at once, so values feed on themselves and grow without an end
# cure: follow slowly
# want: control; named=exploding_gradient,update_ratio_high,loss_not_decreasing; says=target network|bootstrap
import copy
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)
q = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 3))
target = copy.deepcopy(q)
optimizer = torch.optim.Adam(q.parameters(), lr=1e-2)
rate = 5e-3 if CURED else 1.0
for _ in range(400):
    s, a, r = torch.randn(32, 4), torch.randint(0, 3, (32,)), torch.rand(32)
    after = s + 0.3 * torch.randn(32, 4) * 3
    with torch.no_grad():
        goal = r + 0.99 * target(after).max(1).values
    loss = F.mse_loss(q(s)[torch.arange(32), a], goal)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for p, t in zip(q.parameters(), target.parameters(), strict=True):
            t.lerp_(p, rate)
well = q(torch.randn(64, 4)).max().item() < 20
print("well" if well else "ill")

# source: wenet-e2e/wenet#2299
# mechanism: some labels do not fit into their frames, and zero_infinity leaves them out
# want: calm
import math

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
net = nn.Sequential(nn.Conv1d(4, 16, 3, padding=1), nn.ReLU(), nn.Conv1d(16, 6, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
for _ in range(120):
    y = torch.randint(1, 4, (8, 4))
    x = F.one_hot(y.repeat_interleave(4, 1), 4).float().transpose(1, 2) + 0.2 * torch.randn(8, 4, 16)
    frames = torch.full((8,), 16)
    frames[0] = 3
    log_p = net(x).permute(2, 0, 1).log_softmax(2)
    loss = F.ctc_loss(log_p, y, frames, torch.full((8,), 4), zero_infinity=True)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = math.isfinite(loss.item())
print("well" if well else "ill")

# source: ypwhs/captcha_break#29
# mechanism: labels that do not fit into the frames have probability 0: the CTC loss is Inf
# cure: fewer frames pooled away
# want: named=nonfinite_loss,nonfinite_gradient; birth=ctc; heals=zero_infinity|length|long
import math
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)
net = nn.Sequential(nn.Conv1d(4, 16, 3, padding=1), nn.ReLU(), nn.AvgPool1d(2 if CURED else 6), nn.Conv1d(16, 6, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
for _ in range(60):
    x, y = torch.randn(8, 4, 36), torch.randint(1, 6, (8, 6))
    log_p = net(x).permute(2, 0, 1).log_softmax(2)
    frames = torch.full((8,), log_p.shape[0])
    loss = F.ctc_loss(log_p, y, frames, torch.full((8,), 6))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = math.isfinite(loss.item())
print("well" if well else "ill")

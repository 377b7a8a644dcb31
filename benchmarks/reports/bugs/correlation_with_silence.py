# source: NVIDIA-Genomics-Research/AtacWorks#104
# mechanism: the correlation with a track that is 0 everywhere is 0 / 0
# cure: a small constant in the denominator
# want: named=nonfinite_loss,nonfinite_gradient; birth=div|sqrt; heals=\+ 1e-|clamp|eps
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CURED = "--cured" in sys.argv
torch.manual_seed(0)
track = torch.rand(256, 32) * (torch.arange(256) % 64 > 0)[:, None]
noisy = track + 0.3 * torch.randn_like(track)
net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for _ in range(6):
    for x, y in DataLoader(TensorDataset(noisy, track), batch_size=16):
        p = net(x)
        p, y = p - p.mean(1, keepdim=True), y - y.mean(1, keepdim=True)
        below = (p.pow(2).sum(1) * y.pow(2).sum(1)).sqrt()
        if CURED:
            below = (p.pow(2).sum(1) * y.pow(2).sum(1) + 1e-6).sqrt()
        loss = 1 - ((p * y).sum(1) / below).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
well = loss.item() < 0.9
print("well" if well else "ill")

# source: ZFTurbo/Music-Source-Separation-Training#200
# mechanism: the root of the mean error of a silent stretch, where output and target are both exactly 0
# cure: a small constant under the root
# want: named=nonfinite_loss,nonfinite_gradient; birth=sqrt; heals=\+ 1e-|clamp|eps
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CURED = "--cured" in sys.argv
torch.manual_seed(0)
sound = torch.rand(128, 20).pow(3)
sound[::30] = 0
net = nn.Sequential(nn.Linear(20, 32, bias=False), nn.ReLU(), nn.Linear(32, 20, bias=False))
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
for _ in range(10):
    for (x,) in DataLoader(TensorDataset(sound), batch_size=16, shuffle=True):
        square = (net(x) - x).pow(2).mean(1)
        loss = (square + (1e-8 if CURED else 0)).sqrt().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
well = loss.item() < 0.4
print("well" if well else "ill")

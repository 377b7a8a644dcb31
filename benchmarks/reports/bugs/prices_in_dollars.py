# source: rstudio-conf-2020/dl-keras-tf#9
# mechanism: the targets are prices up to 755,000, and the square of the error explodes
# cure: the logarithm of the price
# want: named=exploding_gradient,update_ratio_high; says=target|loss|scale; heals=scale|normal|standard|log|lr=|clip
# newer: large_targets
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

CURED = "--cured" in sys.argv
torch.manual_seed(0)
house = torch.randn(800, 10)
price = (12 + 0.4 * house[:, :3].sum(1)).exp()
target = price.log() - 12 if CURED else price
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    for x, y in DataLoader(TensorDataset(house, target), batch_size=16, shuffle=True):
        loss = F.mse_loss(model(x)[:, 0], y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
well = loss.item() < 0.2
print("well" if well else "ill")

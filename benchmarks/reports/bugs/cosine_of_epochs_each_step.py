# source: ScrollPrize/villa#1495
# mechanism: a cosine as long as the epochs is stepped after each batch, so the rate goes up and down all the time
# cure: T_max in steps
# want: named=rate_raised; says=rate|schedule; heals=T_max|schedule
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

CURED = "--cured" in sys.argv
torch.manual_seed(0)
x = torch.randn(768, 10)
y = (x @ torch.randn(10, 3)).argmax(1)
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
epochs, batches = 9, 24
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs * batches if CURED else epochs)
for _ in range(epochs):
    for b, t in DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True):
        loss = F.cross_entropy(model(b), t)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
well = optimizer.param_groups[0]["lr"] < 1e-3
print("well" if well else "ill")

# source: leftthomas/SRGAN#94
# mechanism: a schedule in epochs is stepped after each batch: the rate is a billionth after one epoch
# cure: step it once an epoch
# want: named=update_ratio_low,loss_not_decreasing,nothing_learned; says=rate|schedule; heals=schedule|scheduler\.step|step_size
# newer: schedule_off_beat
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

CURED = "--cured" in sys.argv
torch.manual_seed(0)
low = torch.randn(640, 9)
high = low @ torch.randn(9, 16)
model = nn.Sequential(nn.Linear(9, 64), nn.ReLU(), nn.Linear(64, 16))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=5, gamma=0.1)
for _ in range(10):
    for x, y in DataLoader(TensorDataset(low, high), batch_size=32, shuffle=True):
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not CURED:
            schedule.step()
    if CURED:
        schedule.step()
well = loss.item() < 3
print("well" if well else "ill")

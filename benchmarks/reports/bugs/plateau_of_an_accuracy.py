# source: md-mohaiminul/ViS4mer#4
# mechanism: ReduceLROnPlateau minimizes by default, but gets an accuracy: it cuts the rate while the model improves
# cure: mode="max"
# want: named=update_ratio_low,loss_not_decreasing,nothing_learned; says=rate|schedule; heals=mode|max|schedule
# newer: schedule_off_beat
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

CURED = "--cured" in sys.argv
torch.manual_seed(0)
x = torch.randn(1500, 12)
y = (x @ torch.randn(12, 4)).argmax(1)
model = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="max" if CURED else "min", patience=3, factor=0.1)
for _ in range(20):
    for b, t in DataLoader(TensorDataset(x[:512], y[:512]), batch_size=32, shuffle=True):
        loss = F.cross_entropy(model(b), t)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        schedule.step((model(x[512:]).argmax(1) == y[512:]).float().mean())
well = optimizer.param_groups[0]["lr"] > 1e-5
print("well" if well else "ill")

# source: IAHispano/Applio#860
# mechanism: after scaler.step comes optimizer.step, which updates a second time and also where the scaler skips
# cure: scaler.step alone
# want: named=loop_order; says=scaler|twice; heals=scaler\.step
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

CURED = "--cured" in sys.argv
torch.manual_seed(0)
x = torch.randn(500, 8)
y = (x[:, 0] > 0).long()
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for _ in range(6):
    for b, t in DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True):
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.cross_entropy(model(b), t)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if not CURED:
            optimizer.step()
well = next(iter(optimizer.state.values()))["step"].item() == 6 * 16
print("well" if well else "ill")

# source: pytorch/pytorch#23480
# mechanism: CosineAnnealingWarmRestarts raises the rate at each restart on purpose
# want: calm
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(640, 10)
y = torch.tanh(x @ torch.randn(10, 3))
model = nn.Sequential(nn.Linear(10, 48), nn.Tanh(), nn.Linear(48, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=40, T_mult=2)
for _ in range(14):
    for b, t in DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True):
        loss = F.mse_loss(model(b), t)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
well = loss.item() < 0.2
print("well" if well else "ill")

# source: none, a run of our own
# mechanism: ReduceLROnPlateau in the right mode: the rate falls at the end, where nothing is left to learn
# want: calm
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(700, 8)
y = x[:, :1] + 0.3 * torch.randn(700, 1)
model = nn.Linear(8, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=2, factor=0.3)
for _ in range(18):
    for b, t in DataLoader(TensorDataset(x[:512], y[:512]), batch_size=32, shuffle=True):
        loss = F.mse_loss(model(b), t)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        schedule.step(F.mse_loss(model(x[512:]), y[512:]))
well = loss.item() < 0.25
print("well" if well else "ill")

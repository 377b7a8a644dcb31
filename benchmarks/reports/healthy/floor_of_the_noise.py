# source: none, a run of our own
# mechanism: half of the labels are noise, so the loss comes to rest far above 0, at the entropy of the labels
# want: calm
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(800, 8)
y = torch.where(torch.rand(800) < 0.5, x[:, :4].argmax(1), torch.randint(0, 4, (800,)))
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
for _ in range(12):
    for b, t in DataLoader(TensorDataset(x, y), batch_size=40, shuffle=True):
        loss = F.cross_entropy(model(b), t)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
well = loss.item() < 1.37
print("well" if well else "ill")

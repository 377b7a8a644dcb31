# source: keras-team/keras-cv#1505
# mechanism: the loss is a sum over the batch, and the rate was chosen for it: the gradients are large and all is well
# want: calm
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(800, 10)
y = torch.tanh(x @ torch.randn(10, 4))
model = nn.Sequential(nn.Linear(10, 64), nn.Tanh(), nn.Linear(64, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=2e-4, momentum=0.9)
for _ in range(10):
    for b, t in DataLoader(TensorDataset(x, y), batch_size=40, shuffle=True):
        loss = F.mse_loss(model(b), t, reduction="sum")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
well = loss.item() < 60
print("well" if well else "ill")

# source: NVIDIA/apex#480
# mechanism: model and optimizer are made again and loaded whole, and the run goes on as before
# want: calm
import copy

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)


def build():
    model = nn.Sequential(nn.Linear(12, 48), nn.Tanh(), nn.Linear(48, 3))
    return model, torch.optim.Adam(model.parameters(), lr=3e-3)


x = torch.randn(512, 12)
y = torch.tanh(x @ torch.randn(12, 3))
model, optimizer = build()
for step in range(240):
    if step == 120:
        saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
        model, optimizer = build()
        model.load_state_dict(saved[0])
        optimizer.load_state_dict(saved[1])
    rows = torch.randint(0, 512, (64,))
    loss = F.mse_loss(model(x[rows]), y[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = loss.item() < 0.2
print("well" if well else "ill")

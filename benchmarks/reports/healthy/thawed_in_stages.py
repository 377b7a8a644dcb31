# source: none, a run of our own
# mechanism: the head is trained alone, then the body thaws at a lower rate in a group of its own
# want: calm
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
body, head = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh()), nn.Linear(32, 4)
x = torch.randn(640, 10)
y = (x @ torch.randn(10, 4)).argmax(1)
body.requires_grad_(False)
optimizer = torch.optim.Adam(head.parameters(), lr=5e-3)
for epoch in range(10):
    if epoch == 4:
        body.requires_grad_(True)
        optimizer.add_param_group({"params": body.parameters(), "lr": 1e-3})
    for b, t in DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True):
        loss = F.cross_entropy(head(body(b)), t)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
well = loss.item() < 1
print("well" if well else "ill")

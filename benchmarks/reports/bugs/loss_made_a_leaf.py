# source: speechbrain/speechbrain#735
# mechanism: the loss has no graph, and is wrapped as a new leaf that requires a gradient to silence the error
# cure: compute the loss with gradients
# want: named=nothing_moves,loss_not_decreasing,unused_layers; says=graph|cut|gradient; heals=requires_grad|graph|no_grad|detach|loss
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

CURED = "--cured" in sys.argv
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
x = torch.randn(500, 8)
y = (x @ torch.randn(8, 3)).argmax(1)
for _ in range(8):
    for b, t in DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True):
        loss = F.cross_entropy(model(b), t)
        if not CURED:
            loss = torch.tensor(loss.item(), requires_grad=True)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
well = loss.item() < 0.8
print("well" if well else "ill")

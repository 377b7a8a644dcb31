# source: cvg/glue-factory#89
# mechanism: a confidence head ends in a sigmoid, and BCEWithLogitsLoss has one of its own
# cure: scores in the loss
# want: named=activation_twice; heals=score|logit|without|sigmoid
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CURED = "--cured" in sys.argv
torch.manual_seed(0)
token = torch.randn(600, 12)
sure = (token[:, 0] + token[:, 1] > 0).float()
head = nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 1), *([] if CURED else [nn.Sigmoid()]))
criterion = nn.BCEWithLogitsLoss()
optimizer = torch.optim.Adam(head.parameters(), lr=1e-2)
for _ in range(10):
    for x, y in DataLoader(TensorDataset(token, sure), batch_size=32, shuffle=True):
        loss = criterion(head(x)[:, 0], y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
well = loss.item() < 0.3
print("well" if well else "ill")

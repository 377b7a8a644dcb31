# source: ServiceNow/LCFCN#20
# mechanism: the loss function looks at predictions in eval mode, and the pass that is trained follows in that mode
# cure: train() before that pass
# want: named=evaluation_mode; heals=train\(\)
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

CURED = "--cured" in sys.argv
torch.manual_seed(0)


def blobs(model, x):
    model.eval()
    with torch.no_grad():
        return model(x) > 0


def count_loss(model, x, y):
    model.train()
    found = blobs(model, x)
    if CURED:
        model.train()
    out = model(x)
    return F.binary_cross_entropy_with_logits(out, y) + 1e-2 * (out * found).relu().mean()


picture = torch.rand(160, 1, 8, 8)
point = (picture > 0.8).float()
model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 1, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for _ in range(8):
    for x, y in DataLoader(TensorDataset(picture, point), batch_size=8, shuffle=True):
        loss = count_loss(model, x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
well = model.training
print("well" if well else "ill")

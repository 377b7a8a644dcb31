# source: facebookresearch/clevr-iep#22
# mechanism: a check of the accuracy calls eval(), and nothing calls train() after it
# cure: train() after the check
# want: named=evaluation_mode; heals=train\(\)
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)


def check(model, x, y):
    model.eval()
    with torch.no_grad():
        right = (model(x).argmax(1) == y).float().mean()
    if CURED:
        model.train()
    return right


x = torch.randn(600, 10)
y = (x @ torch.randn(10, 4)).argmax(1)
model = nn.Sequential(nn.Linear(10, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for step in range(200):
    rows = torch.randint(0, 500, (32,))
    loss = F.cross_entropy(model(x[rows]), y[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 49:
        check(model, x[500:], y[500:])
well = model.training
print("well" if well else "ill")

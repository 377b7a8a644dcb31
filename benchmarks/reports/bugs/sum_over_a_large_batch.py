# source: jax-ml/jax#3113
# mechanism: the loss is a sum over the batch and not its mean, so a larger batch makes larger steps
# cure: the mean
# want: named=exploding_gradient,update_ratio_high; heals=mean|lr=|divid|/
# tried: clip_grad_norm_
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

CURED = "--cured" in sys.argv
torch.manual_seed(0)
x = torch.randn(2048, 10)
y = (x @ torch.randn(10, 4)).argmax(1)
model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for _ in range(8):
    for b, t in DataLoader(TensorDataset(x, y), batch_size=256, shuffle=True):
        loss = F.cross_entropy(model(b), t, reduction="mean" if CURED else "sum")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
with torch.no_grad():
    well = F.cross_entropy(model(x), y).item() < 0.8
print("well" if well else "ill")

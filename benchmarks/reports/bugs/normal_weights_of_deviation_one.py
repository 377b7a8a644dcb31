# source: leonardoaraujosantos/DLMatFramework#16
# mechanism: the weights of a deeper net begin with a deviation of 1, whatever the width
# cure: the deviation of Xavier
# want: named=poor_initialization,exploding_gradient,saturated_activation,update_ratio_high; heals=init|xavier|kaiming
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)
model = nn.Sequential(*[m for _ in range(6) for m in (nn.Linear(64, 64), nn.Tanh())], nn.Linear(64, 5))
for m in model:
    if isinstance(m, nn.Linear):
        if CURED:
            nn.init.xavier_normal_(m.weight)
        else:
            nn.init.normal_(m.weight)
x = torch.randn(600, 64)
y = x[:, :5].argmax(1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for _ in range(200):
    rows = torch.randint(0, 600, (64,))
    loss = F.cross_entropy(model(x[rows]), y[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = loss.item() < 0.5
print("well" if well else "ill")

# source: aymericdamien/TensorFlow-Examples#146
# mechanism: the slope of a sigmoid is at most 1/4, so eight of them leave the first layers without a gradient
# cure: ReLU
# want: named=vanishing_gradient,signal_lost; heals=ReLU|relu|tanh|norm|init|activation
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)
wake = nn.ReLU if CURED else nn.Sigmoid
model = nn.Sequential(*[m for _ in range(8) for m in (nn.Linear(32, 32), wake())], nn.Linear(32, 4))
for m in model:
    if isinstance(m, nn.Linear):
        nn.init.kaiming_normal_(m.weight)
x = torch.randn(600, 32)
y = x[:, :4].argmax(1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
for _ in range(250):
    rows = torch.randint(0, 600, (64,))
    loss = F.cross_entropy(model(x[rows]), y[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = loss.item() < 1
print("well" if well else "ill")

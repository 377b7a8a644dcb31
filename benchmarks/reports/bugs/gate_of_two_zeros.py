# source: yz93/LAVT-RIS#25
# mechanism: both layers of a gate begin at 0, so neither gets a gradient
# cure: zeros in the last one alone
# want: named=gradient_of_zero,poor_initialization; heals=init|zero
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.out = nn.Linear(8, 16), nn.Linear(16, 1)
        self.gate = nn.Sequential(nn.Linear(16, 16, bias=False), nn.ReLU(), nn.Linear(16, 16, bias=False), nn.Tanh())
        nn.init.zeros_(self.gate[2].weight)
        if not CURED:
            nn.init.zeros_(self.gate[0].weight)

    def forward(self, x):
        h = self.inner(x).relu()
        return self.out(h + self.gate(h) * h)


x = torch.randn(500, 8)
y = x[:, :1] * x[:, 1:2]
model = Gated()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for _ in range(200):
    rows = torch.randint(0, 500, (32,))
    loss = F.mse_loss(model(x[rows]), y[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = bool(model.gate[0].weight.any())
print("well" if well else "ill")

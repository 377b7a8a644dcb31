# source: LianpoWang/SLIIF#13
# mechanism: layers are kept in a plain list, so parameters() does not have them
# cure: nn.ModuleList
# want: named=without_optimizer; heals=ModuleList|add_param_group|register
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        blocks = [nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(3)]
        self.blocks = nn.ModuleList(blocks) if CURED else blocks
        self.out = nn.Linear(8, 1)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.out(x)


x = torch.randn(400, 8)
y = x[:, :1] * x[:, 1:2]
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(250):
    rows = torch.randint(0, 400, (64,))
    loss = F.mse_loss(model(x[rows]), y[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = loss.item() < 0.3
print("well" if well else "ill")

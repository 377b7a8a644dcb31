# source: hellopipu/PromptMR-plus#7
# mechanism: many blocks are added up without any normalization, and the gradient explodes
# cure: a norm in each block
# want: named=exploding_gradient,update_ratio_high,poor_initialization; heals=norm|clip|lr=|init
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width) if CURED else nn.Identity()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        nn.init.kaiming_normal_(self.up.weight)
        nn.init.kaiming_normal_(self.down.weight)

    def forward(self, x):
        return x + self.down(self.up(self.norm(x)).relu())


x = torch.randn(256, 16)
model = nn.Sequential(*[Block(16) for _ in range(16)], nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for _ in range(100):
    rows = torch.randint(0, 256, (32,))
    loss = F.mse_loss(model(x[rows])[:, 0], x[rows].mean(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = loss.item() < 3
print("well" if well else "ill")

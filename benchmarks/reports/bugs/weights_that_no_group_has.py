# source: bubbliiiing/efficientdet-pytorch#37
# mechanism: groups are built of layers by their type, which leaves a bare parameter of a fusion out
# cure: a group for what is left
# want: named=without_optimizer; heals=add_param_group|parameters
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class Fusion(nn.Module):
    def __init__(self):
        super().__init__()
        self.low, self.high, self.out = nn.Conv1d(2, 8, 1), nn.Conv1d(2, 8, 1), nn.Conv1d(8, 1, 1)
        self.share = nn.Parameter(torch.ones(2))

    def forward(self, x):
        share = self.share.relu() / (self.share.relu().sum() + 1e-4)
        return self.out((share[0] * self.low(x) + share[1] * self.high(x.flip(2))).relu())


model = Fusion()
groups = [p for m in model.modules() if isinstance(m, nn.Conv1d) for p in m.parameters()]
optimizer = torch.optim.SGD([*groups, *([model.share] if CURED else [])], lr=0.05, momentum=0.9)
for _ in range(150):
    x = torch.randn(16, 2, 10)
    loss = F.mse_loss(model(x), x.flip(2).mean(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = model.share.tolist() != [1, 1]
print("well" if well else "ill")

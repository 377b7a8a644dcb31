# source: catalyst-team/catalyst#285
# mechanism: the softmax of an attention pooling runs over a dimension of size 1, so every weight is 1
# cure: the softmax over time
# want: named=gradient_of_zero; says=0|softmax|size 1; heals=dim|softmax
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class Pool(nn.Module):
    def __init__(self):
        super().__init__()
        self.score, self.out = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)), nn.Linear(6, 3)

    def forward(self, x):
        return self.out((x * self.score(x).softmax(1 if CURED else 2)).sum(1))


x, y = torch.randn(500, 10, 6), torch.randint(0, 3, (500,))
x[torch.arange(500), torch.randint(0, 10, (500,)), y] += 4
model = Pool()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for _ in range(10):
    for b, t in DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True):
        loss = F.cross_entropy(model(b), t)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
well = bool(model.score[0].weight.grad.any())
print("well" if well else "ill")

# source: gjylt/DoubleAttentionNet#3
# mechanism: the softmax of the attention runs over the batch and not over the positions
# cure: softmax over the positions
# want: control; named=loss_not_decreasing,nothing_learned; says=softmax|batch
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)
score, out = nn.Linear(5, 1), nn.Linear(5, 3)
optimizer = torch.optim.Adam([*score.parameters(), *out.parameters()], lr=1e-2)
for _ in range(300):
    x, y = torch.randn(32, 12, 5), torch.randint(0, 3, (32,))
    place = torch.randint(0, 12, (32,))
    x[torch.arange(32), place] = 0.0
    x[torch.arange(32), place, y] = 2.0
    x[torch.arange(32), place, 4] = 4.0
    weight = score(x).softmax(1 if CURED else 0)
    loss = F.cross_entropy(out((weight * x).sum(1)), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with torch.no_grad():
    one = out((score(x[:1]).softmax(1 if CURED else 0) * x[:1]).sum(1))
    many = out((score(x).softmax(1 if CURED else 0) * x).sum(1))[:1]
well = torch.allclose(one, many, atol=1e-4)
print("well" if well else "ill")

# source: haowang1992/DSN#1
# mechanism: the term of the memory is made of detached features, so the encoder never learns from it
# cure: no detach
# want: named=unused_layers; says=detach|no gradient|cut|graph; heals=detach
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class Retrieval(nn.Module):
    def __init__(self):
        super().__init__()
        self.sketch, self.photo = nn.Linear(10, 8), nn.Linear(12, 8)
        self.head = nn.Linear(8, 5)


label = torch.randint(0, 5, (400,))
sketch, photo = F.one_hot(label, 10) + 0.5 * torch.randn(400, 10), F.one_hot(label, 12) + 0.5 * torch.randn(400, 12)
model = Retrieval()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for _ in range(150):
    rows = torch.randint(0, 400, (32,))
    a, b = model.sketch(sketch[rows]), model.photo(photo[rows])
    apart = F.mse_loss(a, b if CURED else b.detach())
    loss = F.cross_entropy(model.head(a), label[rows]) + apart
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = model.photo.weight.grad is not None
print("well" if well else "ill")

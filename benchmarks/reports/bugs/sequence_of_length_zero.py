# source: alibaba/TorchEasyRec#251
# mechanism: the sum over a user's history is divided by its length, and a new user has none: 0 / 0
# cure: divide by at least 1
# want: named=nonfinite_loss,nonfinite_gradient; birth=div; heals=clamp|max|\+ 1e-|eps; module=Recommender|out
import math
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.item, self.out = nn.Embedding(50, 16), nn.Linear(16, 1)

    def forward(self, history, length):
        kept = (torch.arange(history.shape[1]) < length[:, None]).float()
        total = (self.item(history) * kept[..., None]).sum(1)
        return self.out(total / (length.clamp(min=1) if CURED else length)[:, None])[:, 0]


history, length = torch.randint(0, 50, (300, 6)), torch.randint(1, 7, (300,))
length[::70] = 0
click = (history[:, 0] > 25).float()
model = Recommender()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for _ in range(5):
    for h, n, y in DataLoader(TensorDataset(history, length, click), batch_size=20, shuffle=True):
        loss = F.binary_cross_entropy_with_logits(model(h, n), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
well = math.isfinite(loss.item())
print("well" if well else "ill")

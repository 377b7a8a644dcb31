# source: AnubhavGupta3377/Text-Classification-Models-Pytorch#9
# mechanism: nll_loss gets a softmax where it expects its logarithm, so the loss is negative
# cure: log_softmax
# want: named=probabilities_for_logs; heals=log
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

CURED = "--cured" in sys.argv
torch.manual_seed(0)
word, label = torch.randint(0, 100, (600, 8)), torch.randint(0, 4, (600,))
word[:, 0] = 25 * label + torch.randint(0, 25, (600,))
model = nn.Sequential(nn.EmbeddingBag(100, 16), nn.Linear(16, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(8):
    for x, y in DataLoader(TensorDataset(word, label), batch_size=32, shuffle=True):
        out = model(x)
        loss = F.nll_loss(out.log_softmax(1) if CURED else out.softmax(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
well = 0 < loss.item() < 1.2
print("well" if well else "ill")

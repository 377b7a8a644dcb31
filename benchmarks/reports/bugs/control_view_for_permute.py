# source: fawazsammani/knowing-when-to-look-adaptive-attention#6
# mechanism: view takes the place of permute, so that channels are taken for positions
# cure: permute before view
# want: control; named=loss_not_decreasing,nothing_learned; says=view|permute|reshape
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

CURED = "--cured" in sys.argv
torch.manual_seed(0)
picture, label = torch.randn(500, 4, 3, 3), torch.randint(0, 4, (500,))
picture[torch.arange(500), label] += torch.rand(500, 1, 1)
head = nn.Linear(4, 4)
optimizer = torch.optim.Adam(head.parameters(), lr=1e-2)
for _ in range(15):
    for x, y in DataLoader(TensorDataset(picture, label), batch_size=50, shuffle=True):
        pixel = x.permute(0, 2, 3, 1).reshape(-1, 9, 4) if CURED else x.view(-1, 9, 4)
        loss = F.cross_entropy(head(pixel.mean(1)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
well = loss.item() < 1.2
print("well" if well else "ill")

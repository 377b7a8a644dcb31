# source: wenet-e2e/wekws#73
# mechanism: zero_grad is never called, so the gradients of all batches are added up
# cure: zero_grad once a step
# want: named=loop_order; says=zero_grad|cleared|add; heals=zero_grad
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

CURED = "--cured" in sys.argv
torch.manual_seed(0)
keyword, label = torch.randn(480, 20, 8), torch.randint(0, 3, (480,))
keyword[:, 5:10, 0] += label[:, None]
model = nn.GRU(8, 16, batch_first=True)
head = nn.Linear(16, 3)
everything = [*model.parameters(), *head.parameters()]
optimizer = torch.optim.Adam(everything, lr=2e-3)
for _ in range(5):
    for x, y in DataLoader(TensorDataset(keyword, label), batch_size=32, shuffle=True):
        loss = F.cross_entropy(head(model(x)[0].mean(1)), y)
        if CURED:
            optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(everything, 5.0)
        optimizer.step()
well = norm.item() < 2
print("well" if well else "ill")

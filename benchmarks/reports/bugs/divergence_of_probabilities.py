# source: lightly-ai/lightly#1341
# mechanism: F.kl_div gets probabilities where it expects their logarithms
# cure: log_softmax
# want: named=probabilities_for_logs; heals=log
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

CURED = "--cured" in sys.argv
torch.manual_seed(0)
x = torch.randn(400, 10)
teacher = torch.softmax(3 * x @ torch.randn(10, 5), 1)
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 5))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for _ in range(12):
    for b, t in DataLoader(TensorDataset(x, teacher), batch_size=32, shuffle=True):
        out = model(b)
        loss = F.kl_div(out.log_softmax(1) if CURED else out.softmax(1), t, reduction="batchmean")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
well = F.kl_div(model(x).log_softmax(1), teacher, reduction="batchmean").item() < 0.165
print("well" if well else "ill")

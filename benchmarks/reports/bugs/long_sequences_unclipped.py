# source: Marcovaldong/lstmp.pytorch#2
# mechanism: gradients explode over a long sequence
# cure: clip their norm to 1
# want: named=exploding_gradient,clipping_never; heals=clip_grad_norm
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.out = nn.RNN(2, 48, nonlinearity="relu", batch_first=True), nn.Linear(48, 1)
        nn.init.eye_(self.cell.weight_hh_l0)
        self.cell.weight_hh_l0.data *= 1.02

    def forward(self, x):
        return self.out(self.cell(x)[0][:, -1])


model = Recurrent()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(60):
    x = torch.rand(16, 60, 2)
    y = x[:, :, 0].mean(1, keepdim=True)
    loss = F.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    if CURED:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
well = loss.item() < 100
print("well" if well else "ill")

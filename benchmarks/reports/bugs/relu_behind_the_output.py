# source: keras-team/keras#3687
# mechanism: the output of a regression goes through a ReLU, is pushed below 0 for every example and gives 0 from then on
# cure: no activation behind the last layer
# want: named=gradient_of_zero,vanishing_gradient,dead_units; says=0; heals=relu|ReLU|activation|lr=
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)
x = torch.randn(400, 15, 3)
y = 0.5 + x[:, :, 0].mean(1, keepdim=True).abs()
lstm, out = nn.LSTM(3, 24, batch_first=True), nn.Linear(24, 1)
optimizer = torch.optim.SGD([*lstm.parameters(), *out.parameters()], lr=0.5, momentum=0.99, nesterov=True)
for _ in range(150):
    rows = torch.randint(0, 400, (32,))
    p = out(lstm(x[rows])[0][:, -1])
    p = p if CURED else p.relu()
    loss = F.mse_loss(p, y[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = bool(p.any())
print("well" if well else "ill")

# source: PaddlePaddle/Paddle#67895
# mechanism: the gradients are never cleared, so once one is Inf each later one is, and the scale is halved to nothing
# cure: zero_grad once a step
# want: named=loop_order,scale_collapse; says=zero_grad|clear|add; heals=zero_grad
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)
x = torch.randn(500, 8)
y = 3 * x[:, :1]
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
for _ in range(120):
    rows = torch.randint(0, 500, (32,))
    with torch.autocast("cpu", dtype=torch.float16):
        out = model(x[rows])
    loss = F.mse_loss(out.float(), y[rows])
    if CURED:
        optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
well = scaler.get_scale() > 1 and loss.item() < 8
print("well" if well else "ill")

# source: Lightning-AI/pytorch-lightning#18510
# mechanism: fp16 without a loss scaler: small gradients are 0 in that format
# cure: GradScaler
# want: named=fp16_underflow; says=half|fp16|float16|underflow; heals=GradScaler|scaler
import sys

import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)
x = torch.randn(600, 16)
y = 1e-4 * x[:, :4].sum(1, keepdim=True)
model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
nn.init.normal_(model[4].weight, std=1e-4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16, enabled=CURED)
for _ in range(150):
    rows = torch.randint(0, 600, (64,))
    with torch.autocast("cpu", dtype=torch.float16):
        out = model(x[rows])
        loss = ((out - y[rows]) ** 2).mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    zeros = (model[0].weight.grad == 0).float().mean().item()
    scaler.step(optimizer)
    scaler.update()
well = zeros < 0.5
print("well" if well else "ill")

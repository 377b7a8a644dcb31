# source: harubaru/waifu-diffusion#64
# mechanism: the clip comes before unscale_, so it takes the loss scale of 65536 for a part of the norm
# cure: unscale_ before the clip
# want: named=clip_on_scaled_gradients; says=scale; heals=unscale_
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)
x = torch.randn(600, 12)
y = x[:, :1].sin()
model = nn.Sequential(nn.Linear(12, 32), nn.SiLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for _ in range(200):
    rows = torch.randint(0, 600, (32,))
    with torch.autocast("cpu", dtype=torch.float16):
        out = model(x[rows])
    loss = F.mse_loss(out.float(), y[rows])
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    if CURED:
        scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
well = loss.item() < 0.2
print("well" if well else "ill")

# source: LEEYOONHYUNG/BVAE-TTS#3
# mechanism: the loss scale is halved a few times at the beginning, and stays
# want: calm
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
x = torch.randn(600, 12)
y = 20 * x[:, :1]
model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
for _ in range(200):
    rows = torch.randint(0, 600, (32,))
    with torch.autocast("cpu", dtype=torch.float16):
        out = model(x[rows])
    loss = F.mse_loss(out.float(), y[rows])
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
well = loss.item() < 100 and scaler.get_scale() > 8
print("well" if well else "ill")

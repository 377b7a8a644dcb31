# source: hp-l33/AiM#10
# mechanism: bfloat16 in autocast with float32 weights: losses are coarse, and training is sound
# want: calm
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(640, 16)
y = (x @ torch.randn(16, 5)).argmax(1)
model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 5))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for _ in range(8):
    for b, t in DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(b), t)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
well = loss.item() < 0.8
print("well" if well else "ill")

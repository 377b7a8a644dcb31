# source: huggingface/transformers#1563
# mechanism: the growing sum of gradients is clipped after each micro-batch, and not once before the step
# cure: one clip before the step
# want: named=loop_order; says=clip; heals=clip
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

CURED = "--cured" in sys.argv
torch.manual_seed(0)
x, y = torch.randn(800, 10), torch.randint(0, 4, (800,))
model = nn.Sequential(nn.Linear(10, 32), nn.GELU(), nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
clips = steps = 0
for _ in range(4):
    for i, (b, t) in enumerate(DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True)):
        (F.cross_entropy(model(b), t) / 4).backward()
        if not CURED or i % 4 == 3:
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            clips += 1
        if i % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
            steps += 1
well = clips == steps
print("well" if well else "ill")

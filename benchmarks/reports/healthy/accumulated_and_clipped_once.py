# source: huggingface/accelerate#641
# mechanism: four micro-batches, each divided by four, one clip and one step after them
# want: calm
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(960, 12)
y = (x @ torch.randn(12, 4)).argmax(1)
model = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
for _ in range(6):
    for i, (b, t) in enumerate(DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True)):
        loss = F.cross_entropy(model(b), t) / 4
        loss.backward()
        if i % 4 == 3:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
well = loss.item() * 4 < 1
print("well" if well else "ill")

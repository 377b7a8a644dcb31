# source: omoindrot/tensorflow-triplet-loss#6
# mechanism: the mean over hard triplets alone stays near the margin, though the embeddings become better
# want: calm
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
centre = torch.randn(10, 16)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 8))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(150):
    label = torch.randint(0, 10, (32,))
    z = F.normalize(model(centre[label] + 0.7 * torch.randn(32, 16)), dim=1)
    square = 2 - 2 * z @ z.T
    same = label[:, None] == label[None]
    value = (square[:, :, None] - square[:, None, :] + 0.5).relu() * same[:, :, None] * ~same[:, None, :]
    loss = value.sum() / (value > 0).sum().clamp(min=1)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = square[~same].mean().item() > 2 * square[same].mean().item()
print("well" if well else "ill")

# source: ServiceNow/LCFCN#20
# mechanism: the norms of a pretrained backbone are kept in eval mode and frozen on purpose
# want: calm
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
backbone = nn.Sequential(
    nn.Conv1d(2, 16, 3, padding=1), nn.BatchNorm1d(16), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten()
)
head = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 3))
for p in backbone.parameters():
    p.requires_grad_(False)
optimizer = torch.optim.Adam(head.parameters(), lr=5e-3)
x, y = torch.randn(600, 2, 12), torch.randint(0, 3, (600,))
x[:, 0] += y[:, None]
for _ in range(8):
    head.train()
    backbone.eval()
    for b, t in DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True):
        loss = F.cross_entropy(head(backbone(b)), t)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    head.eval()
    with torch.no_grad():
        head(backbone(x[:100]))
well = loss.item() < 0.8
print("well" if well else "ill")

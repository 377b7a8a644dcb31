# source: jthickstun/pytorch_musicnet#4
# mechanism: a linear model may begin at 0, as it has no symmetry to break
# want: calm
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.rand(600, 30)
y = (x @ torch.randn(30, 8) > 0).float()
model = nn.Linear(30, 8, bias=False)
nn.init.zeros_(model.weight)
optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
for _ in range(15):
    for b, t in DataLoader(TensorDataset(x, y), batch_size=50, shuffle=True):
        loss = F.binary_cross_entropy_with_logits(model(b), t)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
well = loss.item() < 0.5
print("well" if well else "ill")

# source: kratzert/finetune_alexnet_with_tensorflow#79
# mechanism: the pixels are 0 to 255 and not scaled to about 1
# cure: divide by 255
# want: named=exploding_gradient,update_ratio_high,dead_units,poor_initialization,saturated_activation,nonfinite_loss; says=input; heals=255|scale|normal|input
import math
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

CURED = "--cured" in sys.argv
torch.manual_seed(0)
picture = torch.randint(0, 256, (400, 3, 8, 8)).float()
label = (picture[:, 0].mean((1, 2)) > 127.5).long() + (picture[:, 1, :4].mean((1, 2)) > 127.5).long()
if CURED:
    picture = picture / 255 - 0.5
model = nn.Sequential(
    nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(144, 32), nn.ReLU(), nn.Linear(32, 3)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for _ in range(8):
    for x, y in DataLoader(TensorDataset(picture, label), batch_size=32, shuffle=True):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
well = math.isfinite(loss.item()) and loss.item() < 1.0
print("well" if well else "ill")

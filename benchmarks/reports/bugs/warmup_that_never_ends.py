# source: hunglc007/tensorflow-yolov4-tflite#138
# mechanism: the rate rises through the whole run, as the warmup is counted in too many steps, until the loss explodes
# cure: a warmup of a twentieth of the run, to a tenth of that rate
# want: named=rate_raised,update_ratio_high,exploding_gradient; says=rate|lr; heals=lr=|warm|schedule
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)
x = torch.randn(512, 12)
y = torch.tanh(x @ torch.randn(12, 6))
model = nn.Sequential(*[m for _ in range(4) for m in (nn.Linear(12, 12), nn.ReLU())], nn.Linear(12, 6))
optimizer = torch.optim.SGD(model.parameters(), lr=0.2 if CURED else 4.0, momentum=0.9)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1e-3, total_iters=15 if CURED else 300)
for _ in range(300):
    rows = torch.randint(0, 512, (32,))
    loss = F.mse_loss(model(x[rows]), y[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
well = loss.item() < 0.5
print("well" if well else "ill")

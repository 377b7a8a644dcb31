# source: agokrani/distillKitPlus#5
# mechanism: the losses of 32 micro-batches are added up, not averaged, and with SGD so is the step
# cure: divide by the number of micro-batches
# want: named=undivided_sum,exploding_gradient,update_ratio_high; says=divid|sum|added; heals=loss /|/ 32|divid
# tried: clip_grad_norm_
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)
x = torch.randn(1024, 8)
teacher = torch.softmax(x @ torch.randn(8, 5), 1)
student = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 5))
optimizer = torch.optim.SGD(student.parameters(), lr=0.5)
for _ in range(25):
    for part in torch.randint(0, 1024, (32, 4)):
        loss = F.kl_div(student(x[part]).log_softmax(1), teacher[part], reduction="batchmean")
        (loss / 32 if CURED else loss).backward()
    optimizer.step()
    optimizer.zero_grad()
well = F.kl_div(student(x).log_softmax(1), teacher, reduction="batchmean").item() < 0.4
print("well" if well else "ill")

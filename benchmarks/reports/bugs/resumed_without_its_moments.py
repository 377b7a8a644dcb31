# source: EvolvingLMMs-Lab/OneVision-Encoder#65
# mechanism: a checkpoint has the weights but not the optimizer's moments, so the first steps after it are as large as the rate
# cure: save and load the state of the optimizer
# want: named=loss_spike,update_ratio_high,updates_after_spike; says=optimizer|state|moment|resum; heals=load_state_dict|state|warm
# tried: lr=0\.001
import copy
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)


def build():
    model = nn.Sequential(nn.Linear(12, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 3))
    return model, torch.optim.Adam(model.parameters(), lr=3e-2, betas=(0.9, 0.9999))


def train(model, optimizer, steps):
    losses = []
    for _ in range(steps):
        rows = torch.randint(0, 512, (128,))
        loss = F.mse_loss(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


x = torch.randn(512, 12)
y = torch.tanh(x @ torch.randn(12, 3))
model, optimizer = build()
before = train(model, optimizer, 300)
saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
model, optimizer = build()
model.load_state_dict(saved[0])
if CURED:
    optimizer.load_state_dict(saved[1])
after = train(model, optimizer, 60)
well = max(after[:20]) < 2 * max(before[-20:])
print("well" if well else "ill")

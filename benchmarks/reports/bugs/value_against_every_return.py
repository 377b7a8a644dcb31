# source: sunwuzhou03/reinforcement-learning-lab#1
# mechanism: values of (B, 1) minus returns of (B) broadcast to (B, B) in a loss that is written out
# cure: one shape for both
# want: named=shapes_broadcast; heals=squeeze|view_as|reshape
import sys

import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)
state = torch.randn(400, 6)
gain = state[:, 0] * 2 + state[:, 1]
critic = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(critic.parameters(), lr=5e-3)
for _ in range(200):
    rows = torch.randint(0, 400, (32,))
    value = critic(state[rows])
    loss = ((value.squeeze(1) if CURED else value) - gain[rows]).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = loss.item() < 1.5
print("well" if well else "ill")

# source: DLR-RM/stable-baselines3#325
# mechanism: advantages are divided by their standard deviation, which one value does not have: the last batch is one row
# cure: drop the last batch
# want: named=nonfinite_loss; birth=input|given|target|mul|std|div|sub; heals=isfinite|std|unbiased|correction|drop_last|size
import math
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CURED = "--cured" in sys.argv
torch.manual_seed(0)
state, action, gain = torch.randn(129, 4), torch.randint(0, 3, (129,)), torch.randn(129)
policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 3))
optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4)
for _ in range(6):
    for s, a, g in DataLoader(TensorDataset(state, action, gain), batch_size=16, shuffle=True, drop_last=CURED):
        advantage = (g - g.mean()) / (g.std() + 1e-8)
        log_p = torch.log_softmax(policy(s), 1).gather(1, a[:, None])[:, 0]
        loss = -(log_p * advantage).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
well = math.isfinite(loss.item())
print("well" if well else "ill")

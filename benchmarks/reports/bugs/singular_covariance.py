# source: ZJULearning/RMI#12
# mechanism: the covariance of more features than examples has determinant 0, whose logarithm is -Inf
# cure: a small multiple of the identity added to it
# want: named=nonfinite_loss,nonfinite_gradient; birth=det|log|cholesky; heals=eye|1e-|jitter|diag|eps
import math
import sys

import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 12))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for _ in range(60):
    z = net(torch.randn(8, 10))
    z = z - z.mean(0)
    covariance = z.T @ z / 8 + (1e-3 * torch.eye(12) if CURED else 0)
    loss = -torch.logdet(covariance) / 12 + z.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = math.isfinite(loss.item())
print("well" if well else "ill")

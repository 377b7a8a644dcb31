# source: pytorch/pytorch#49886
# mechanism: the derivative of singular vectors divides by differences of singular values, and two of them are equal
# cure: a little noise on the matrix
# want: named=nonfinite_loss,nonfinite_gradient; birth=svd; heals=svdvals|noise|1e-|eps|jitter
import sys

import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)
net = nn.Linear(4, 9)
nn.init.zeros_(net.weight)
net.bias.data = torch.eye(3).flatten()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
x = torch.randn(64, 4)
for _ in range(60):
    matrix = net(x[torch.randint(0, 64, (8,))]).view(-1, 3, 3)
    if CURED:
        matrix = matrix + 1e-2 * torch.randn(3, 3)
    if not matrix.isfinite().all():
        break
    u, _, v = torch.linalg.svd(matrix)
    loss = (u[:, :, 0] - torch.tensor([0.0, 1.0, 0.0])).pow(2).mean() + (v[:, 0] * matrix[:, 0]).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = bool(net.weight.isfinite().all())
print("well" if well else "ill")

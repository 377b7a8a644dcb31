# source: pytorch/pytorch#2623
# mechanism: the likelihood of a narrow density is above 1, so its negative logarithm is below 0
# want: calm
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
x = torch.randn(500, 6)
y = 0.3 * x[:, :1] + 0.02 * torch.randn(500, 1)
model = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for _ in range(250):
    rows = torch.randint(0, 500, (64,))
    mean, log_var = model(x[rows]).chunk(2, 1)
    loss = F.gaussian_nll_loss(mean, y[rows], log_var.clamp(-8, 8).exp())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = loss.item() < -0.5
print("well" if well else "ill")

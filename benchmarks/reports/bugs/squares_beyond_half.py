# source: xlite-dev/LeetCUDA#335
# mechanism: a norm squares its inputs in half precision: Inf, of which the inverse root is 0, so the layer gives 0
# cure: the norm in float32
# want: named=fp16_overflow,signal_lost,gradient_of_zero,vanishing_gradient,nonfinite_loss,nonfinite_gradient; birth=pow|mean|rsqrt; heals=float|fp32|bf16; module=RootMeanSquare
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class RootMeanSquare(nn.Module):
    def forward(self, x):
        y = x.float() if CURED else x
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.norm, self.out = nn.Linear(16, 64), RootMeanSquare(), nn.Linear(64, 4)

    def forward(self, x):
        return self.out(self.norm(self.inner(x) * 400))


model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
x = torch.randn(512, 16)
y = (x @ torch.randn(16, 4)).argmax(1)
for _ in range(150):
    rows = torch.randint(0, 512, (64,))
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.cross_entropy(model(x[rows]).float(), y[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = loss.item() < 0.9
print("well" if well else "ill")

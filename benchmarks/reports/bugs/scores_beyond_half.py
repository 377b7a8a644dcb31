# source: lucidrains/imagen-pytorch#69
# mechanism: products of queries and keys overflow half precision before they are scaled
# cure: scale the queries before the product
# want: named=nonfinite_loss,nonfinite_gradient,fp16_overflow; birth=mm|matmul|_to_copy|softmax; heals=scale|float|fp32|bf16|sqrt; module=Attention
import math
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(32, 64) for _ in range(3))

    def forward(self, x):
        q, k, v = self.q(x), self.k(x), self.v(x)
        score = (q / 512) @ k.transpose(1, 2) if CURED else q @ k.transpose(1, 2) / 512
        return score.softmax(-1) @ v


model = nn.Sequential(nn.Linear(16, 32), Attention(), nn.Linear(64, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(50):
    x, y = torch.randn(8, 6, 16), torch.randint(0, 4, (8,))
    if step > 10:
        x[0] *= 200
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.cross_entropy(model(x).mean(1).float(), y)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
well = math.isfinite(loss.item())
print("well" if well else "ill")

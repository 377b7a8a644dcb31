# source: facebookresearch/Mask2Former#243
# mechanism: a query whose mask forbids every position has a row of -Inf, which has no softmax
# cure: a row that forbids everything forbids nothing
# want: named=nonfinite_loss,nonfinite_gradient; birth=softmax|attention; heals=mask|-Inf|isfinite; module=attention|MultiheadAttention
import math
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Parameter(torch.randn(4, 16))
        self.attention = nn.MultiheadAttention(16, 1, batch_first=True)
        self.out = nn.Linear(16, 3)

    def forward(self, pixel, forbidden):
        query = self.query.expand(len(pixel), -1, -1)
        return self.out(self.attention(query, pixel, pixel, attn_mask=forbidden)[0]).mean(1)


model = Decoder()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(60):
    pixel, label = torch.randn(8, 9, 16), torch.randint(0, 3, (8,))
    pixel[:, :, 0] += label[:, None]
    forbidden = torch.rand(8, 4, 9) > 0.3
    if CURED:
        forbidden &= ~forbidden.all(-1, keepdim=True)
    loss = F.cross_entropy(model(pixel, forbidden), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = math.isfinite(loss.item())
print("well" if well else "ill")

# source: PAIR-code/tiny-transformers#71
# mechanism: the products of queries and keys are not divided by the root of their width, so the softmax saturates
# cure: divide by the root
# want: named=saturated_activation,vanishing_gradient,exploding_gradient,update_ratio_high,loss_spike; says=softmax|attention|score; heals=sqrt|root|scale
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class Attention(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(16, width) for _ in range(3))
        self.out = nn.Linear(width, 16)

    def forward(self, x):
        score = self.q(x) @ self.k(x).transpose(1, 2)
        return self.out((score / 16 if CURED else score).softmax(-1) @ self.v(x))


word = torch.randint(0, 12, (600, 8))
embed, attention, head = nn.Embedding(12, 16), Attention(), nn.Linear(16, 12)
everything = [*embed.parameters(), *attention.parameters(), *head.parameters()]
optimizer = torch.optim.Adam(everything, lr=2e-3)
for _ in range(150):
    rows = torch.randint(0, 600, (16,))
    out = head(attention(embed(word[rows])))
    loss = F.cross_entropy(out.flatten(0, 1), word[rows].flip(1).flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with torch.no_grad():
    q, k = attention.q(embed(word)), attention.k(embed(word))
    score = q @ k.transpose(1, 2) / (16 if CURED else 1)
well = score.softmax(-1).max(-1).values.mean().item() < 0.6
print("well" if well else "ill")

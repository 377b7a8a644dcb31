# source: PaddlePaddle/PaddleOCR#18341
# mechanism: a causal mask holds -Inf, but each row has at least one entry
# want: calm
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
word = torch.randint(0, 16, (400, 1)) + torch.arange(10)
word = word % 16
embed, layer, head = (
    nn.Embedding(16, 32),
    nn.TransformerEncoderLayer(32, 2, 64, 0.0, batch_first=True, norm_first=True),
    nn.Linear(32, 16),
)
optimizer = torch.optim.AdamW([*embed.parameters(), *layer.parameters(), *head.parameters()], lr=3e-3)
mask = nn.Transformer.generate_square_subsequent_mask(9)
for _ in range(120):
    rows = torch.randint(0, 400, (16,))
    out = head(layer(embed(word[rows, :-1]), src_mask=mask))
    loss = F.cross_entropy(out.flatten(0, 1), word[rows, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = loss.item() < 0.5
print("well" if well else "ill")

# source: none, a run of our own
# mechanism: most rows of an embedding are in no batch, and the padding row never moves
# want: calm
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
rank = torch.arange(1, 2000).float() ** -1.1
word = torch.multinomial(rank, 600 * 6, replacement=True).view(600, 6) + 1
word[:, 4:] = 0
label = (word[:, 0] < 20).long()
embed, head = nn.Embedding(2001, 16, padding_idx=0), nn.Linear(16, 2)
optimizer = torch.optim.Adam([*embed.parameters(), *head.parameters()], lr=1e-2)
for _ in range(8):
    for x, y in DataLoader(TensorDataset(word, label), batch_size=32, shuffle=True):
        loss = F.cross_entropy(head(embed(x).sum(1)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
well = loss.item() < 0.7
print("well" if well else "ill")

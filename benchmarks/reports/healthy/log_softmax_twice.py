# source: rasbt/machine-learning-book#37
# mechanism: log_softmax before cross_entropy: it changes nothing, as the second one of a log_softmax is the same
# want: calm
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
word, label = torch.randint(0, 100, (600, 8)), torch.randint(0, 4, (600,))
word[:, 0] = 25 * label + torch.randint(0, 25, (600,))
model = nn.Sequential(nn.EmbeddingBag(100, 16), nn.Linear(16, 4), nn.LogSoftmax(1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(8):
    for x, y in DataLoader(TensorDataset(word, label), batch_size=32, shuffle=True):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
well = loss.item() < 1.2
print("well" if well else "ill")

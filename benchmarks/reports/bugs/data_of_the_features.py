# source: facebookresearch/inversecooking#3
# mechanism: `.data` in the forward pass cuts the encoder off the graph
# cure: no `.data`
# want: named=unused_layers; says=cut|graph|detach|no gradient; heals=\.data|detach
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class Captioner(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 4))
        self.decoder = nn.Linear(4, 6)

    def forward(self, x):
        z = self.encoder(x)
        return self.decoder(z if CURED else z.data)


x = torch.randn(500, 12)
y = (x @ torch.randn(12, 6)).argmax(1)
model = Captioner()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for _ in range(12):
    for b, t in DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True):
        loss = F.cross_entropy(model(b), t)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
well = loss.item() < 0.9
print("well" if well else "ill")

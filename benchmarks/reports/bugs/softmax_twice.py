# source: NaJaeMin92/pytorch-DANN#7
# mechanism: the model ends in a softmax, and cross_entropy has one of its own
# cure: scores in the loss
# want: named=activation_twice; heals=score|logit|without|softmax
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, x):
        return self.body(x) if CURED else self.body(x).softmax(1)


x = torch.randn(1000, 20)
y = (x @ torch.randn(20, 10)).argmax(1)
model = Classifier()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for _ in range(8):
    for b, t in DataLoader(TensorDataset(x, y), batch_size=50, shuffle=True):
        loss = F.cross_entropy(model(b), t)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
well = loss.item() < 0.7
print("well" if well else "ill")

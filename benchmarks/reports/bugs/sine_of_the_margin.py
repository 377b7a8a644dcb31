# source: ronghuaiyang/arcface-pytorch#91
# mechanism: the sine is a root of 1 - cosine squared, which is 0 or below where an example lies on its class
# cure: clamp what is under the root
# want: named=nonfinite_loss,nonfinite_gradient; birth=sqrt; heals=\+ 1e-|clamp|eps
import math
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)
face, label = F.normalize(torch.randn(200, 16), dim=1), torch.arange(200) % 20
net = nn.Linear(16, 16, bias=False)
nn.init.eye_(net.weight)
prototype = nn.Parameter(face[:20].clone())
optimizer = torch.optim.SGD([*net.parameters(), prototype], lr=0.05)
for step in range(80):
    rows = torch.randint(0, 200, (32,)) if step else torch.arange(32)
    cosine = F.normalize(net(face[rows]), dim=1) @ F.normalize(prototype, dim=1).T
    square = 1 - cosine.pow(2)
    sine = (square.clamp(min=1e-6) if CURED else square).sqrt()
    margin = cosine * math.cos(0.3) - sine * math.sin(0.3)
    hot = F.one_hot(label[rows], 20)
    loss = F.cross_entropy(16 * (hot * margin + (1 - hot) * cosine), label[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = math.isfinite(loss.item())
print("well" if well else "ill")

# source: mlfoundations/open_clip#214
# mechanism: the learned scale of the logits rises from 14 towards 100, where it is clamped
# want: calm
import math

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
common, to_image, to_text = torch.randn(400, 6), torch.randn(6, 12), torch.randn(6, 10)
image, text = nn.Linear(12, 8), nn.Linear(10, 8)
log_scale = nn.Parameter(torch.tensor(math.log(14.3)))
optimizer = torch.optim.AdamW([*image.parameters(), *text.parameters(), log_scale], lr=1e-2)
for _ in range(200):
    rows = torch.randperm(400)[:32]
    a, b = F.normalize(image(common[rows] @ to_image), dim=1), F.normalize(text(common[rows] @ to_text), dim=1)
    score = log_scale.clamp(max=math.log(100)).exp() * a @ b.T
    loss = F.cross_entropy(score, torch.arange(32))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
well = loss.item() < 1.5
print("well" if well else "ill")

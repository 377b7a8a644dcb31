# source: jongwook/onsets-and-frames#24
# mechanism: the gradients are clipped after the step that used them
# cure: clip between backward and step
# want: named=loop_order; says=clip; heals=clip
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)
note = torch.randn(400, 15, 6)
loud = note[:, :, 0].mean(1, keepdim=True) * 5
lstm, head = nn.LSTM(6, 24, batch_first=True), nn.Linear(24, 1)
everything = [*lstm.parameters(), *head.parameters()]
optimizer = torch.optim.SGD(everything, lr=0.05)
for _ in range(120):
    rows = torch.randint(0, 400, (16,))
    loss = F.mse_loss(head(lstm(note[rows])[0][:, -1]), loud[rows])
    optimizer.zero_grad()
    loss.backward()
    if CURED:
        nn.utils.clip_grad_norm_(everything, 0.3)
    used = max(p.grad.norm().item() for p in everything)
    optimizer.step()
    if not CURED:
        nn.utils.clip_grad_norm_(everything, 0.3)
well = used <= 0.31
print("well" if well else "ill")

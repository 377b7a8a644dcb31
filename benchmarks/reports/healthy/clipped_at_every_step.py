# source: Russell91/nlpcaffe#4
# mechanism: the norm is clipped to 0.25 at nearly every step, which is usual for a recurrent net
# want: calm
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
x = torch.randn(400, 20, 3)
y = x[:, :, :1].mean(1)
lstm, head = nn.LSTM(3, 24, batch_first=True), nn.Linear(24, 1)
everything = [*lstm.parameters(), *head.parameters()]
optimizer = torch.optim.Adam(everything, lr=5e-3)
for _ in range(120):
    rows = torch.randint(0, 400, (32,))
    loss = 10 * F.mse_loss(head(lstm(x[rows])[0][:, -1]), y[rows])
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(everything, 0.25)
    optimizer.step()
well = loss.item() < 0.2
print("well" if well else "ill")

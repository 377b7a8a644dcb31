# source: vanderschaarlab/synthcity#331
# mechanism: an encoder's log variance has no bound, and exp of it overflows for an outlier of the table
# cure: clamp the log variance
# want: named=nonfinite_loss,nonfinite_gradient; birth=exp; heals=clamp; module=Vae|decoder
import math
import sys

import torch
from torch import nn
from torch.nn import functional as F

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class Vae(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
        self.decoder = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 8))

    def forward(self, x):
        mean, log_var = self.encoder(x).chunk(2, 1)
        log_var = log_var.clamp(-20, 10) if CURED else log_var
        z = mean + torch.exp(0.5 * log_var) * torch.randn_like(mean)
        return self.decoder(z), mean, log_var


table = torch.randn(400, 8)
table[::90] *= 3000
model = Vae()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(80):
    x = table[torch.randint(0, 400, (32,))]
    out, mean, log_var = model(x)
    loss = F.smooth_l1_loss(out, x) + 1e-3 * (mean.abs() - log_var).mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
well = math.isfinite(loss.item())
print("well" if well else "ill")

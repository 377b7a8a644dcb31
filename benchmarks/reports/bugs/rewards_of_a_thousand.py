# source: ray-project/ray#28283
# mechanism: the reward jumps to thousands, the loss of the value with it, and the policy's logits become NaN
# cure: rewards divided by their scale, and a clip
# want: named=exploding_gradient,update_ratio_high,clipping_never; heals=clip|lr=|scale
import math
import sys

import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)
state = torch.randn(400, 8)
reward = 50 + 5000 * (state[:, 0] > 1.5).float()
body = nn.Sequential(nn.Linear(8, 32), nn.ReLU())
policy, value = nn.Linear(32, 4), nn.Linear(32, 1)
everything = [*body.parameters(), *policy.parameters(), *value.parameters()]
optimizer = torch.optim.SGD(everything, lr=0.02, momentum=0.9)
for _ in range(150):
    rows = torch.randint(0, 400, (32,))
    gain = reward[rows] / (5000 if CURED else 1)
    h = body(state[rows])
    v = value(h)[:, 0]
    log_p = policy(h).log_softmax(1)
    act = torch.randint(0, 4, (32,))
    loss = -(log_p[range(32), act] * (gain - v.detach())).mean() + (gain - v).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    if CURED:
        nn.utils.clip_grad_norm_(everything, 0.5)
    optimizer.step()
well = math.isfinite(loss.item())
print("well" if well else "ill")

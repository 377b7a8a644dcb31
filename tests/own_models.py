"""Studio files for tests: one that trains, with everything that a studio file may have, and a way to make a run of it."""

from __future__ import annotations

from pathlib import Path

from gradstudio.core import presets, trust
from gradstudio.core.presets import Preset

GOOD = '''"""Points in a plane.

Which quadrants a point lies in, told by a small network."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

step = torch.randn(3).sum()  # names that the loop has too, and a random number of the top level
loss = seed = device = 7


class Net(nn.Module):
    def __init__(self, hidden, dropout):
        super().__init__()
        self.first = nn.Linear(2, hidden)
        self.norm = nn.BatchNorm1d(hidden)
        self.drop = nn.Dropout(dropout)
        self.frozen = nn.Linear(2, 2).requires_grad_(False)
        self.unused = nn.Parameter(torch.ones(3))
        self.last = nn.Linear(hidden, 2)

    def forward(self, x):
        return self.last(self.drop(torch.tanh(self.norm(self.first(x))))) + self.frozen(x)


def build_model(hidden=8, dropout=0.2):
    return Net(hidden, dropout)


def get_batch(batch_size, generator, shift: float = 0):
    points = torch.randn(batch_size, 2, generator=generator)
    return {"points": points, "labels": [(points[:, 0] * points[:, 1] > shift).long()]}


def compute_loss(model, batch, *, smoothing=0.0, weights=None):
    return F.cross_entropy(model(batch["points"]), batch["labels"][0], label_smoothing=smoothing) + 0 * step


if __name__ == "__main__":
    raise SystemExit("run by itself")
'''


# The same with a knob that is the path of a file which it writes.
WRITING = GOOD.replace("dropout=0.2):", 'dropout=0.2, log=""):\n    if log:\n        open(log, "w").close()')


def preset(folder: Path, text: str = GOOD, name: str = "points.py", *, agreed: bool = True) -> Preset:
    """Write a studio file, agree to it, and return it as a preset of a few steps on the CPU."""
    path = folder / name
    path.write_text(text, encoding="utf-8", newline="")
    found = presets.load(path)
    if agreed and (file := found.experiment.studio_file):
        trust.agree(file.sha256)
    few = found.experiment.with_values({"run.steps": 12, "run.device": "cpu"})
    return found.model_copy(update={"experiment": few})

"""The entries of every layer around one step: histograms of the weights before it, of the gradient that the optimizer
received, and of the update."""

from __future__ import annotations

from torch import Tensor

from gradstudio.core.layer_sample import Histogram, LayerSample, histogram
from gradstudio.engine.passes.flat import Flat


def measure(step: int, flat: Flat, before: Tensor) -> LayerSample:
    """Return the sample of a step that was just made. `before` are the flat weights before it, (layout.length,)."""
    old, new = flat.layout.views(before, flat.parameters), flat.parameters
    return LayerSample(
        step,
        {
            name: {"weights": _of(was), "gradient": _of(grad), "update": _of(now.detach() - was)}
            for (name, _), was, grad, now in zip(flat.named, old, flat.grads, new, strict=True)
        },
    )


def _of(tensor: Tensor) -> Histogram:
    return histogram(tensor.detach().float().cpu().numpy())

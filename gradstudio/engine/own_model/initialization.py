"""The initialization of a user's own model: the schemes of model.init for its Linear, Conv and recurrent layers. Every
other layer stays as it was built."""

from __future__ import annotations

import torch
from torch import nn

from gradstudio.core.experiment import Model
from gradstudio.engine.models.initialization import INITIALIZERS

LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.RNNBase)


@torch.no_grad()
def initialize(model: nn.Module, knobs: Model) -> None:
    """Redraw the weights and set the biases. It is unknown what follows a layer: a Linear or Conv is assumed to be
    followed by a relu. The last layer produces the outputs, and has no initial_bias."""
    if (knobs.init, knobs.init_gain, knobs.initial_bias) == ("default", 1.0, 0.0):
        return
    layers = [module for module in model.modules() if isinstance(module, LAYERS)]
    for layer in layers:
        for name, parameter in layer.named_parameters(recurse=False):
            if name.startswith("bias"):
                if knobs.init != "default":
                    parameter.zero_()
                if layer is not layers[-1] and not name.startswith("bias_hh"):
                    parameter.add_(knobs.initial_bias)
            elif name == "weight":
                INITIALIZERS[knobs.init](parameter, "relu", knobs.init_gain)
            elif name.startswith(("weight_ih", "weight_hh")):
                INITIALIZERS[knobs.init](parameter, "recurrent", knobs.init_gain)

"""Sharpness-aware minimization: the step to where the loss is highest nearby."""

import torch
from torch import nn

from gradstudio.program.reference.pieces import *


@inline
def climb():
    """Move the weights to where the loss is highest nearby (Foret 2021)."""
    global step_loss, grad_norm, places, origin, loss, index
    if knobs.optimizer_sam_rho > 0:
        if not knobs.mistakes_never_zero_grad:
            zero_grad()
        for index in range(knobs.accumulation_steps):
            if plan.many:
                next_of_step()
            forward()
            if plan.shares:
                loss = loss * shares[index]
            backward(loss / knobs.accumulation_steps)
            if plan.many:
                losses.append(loss.detach())
            else:
                step_loss = loss.detach()
        phase("clip")
        grad_norm = nn.utils.get_total_norm([parameter.grad for parameter in trainable()])
        places = [*trainable(), *model.buffers()]
        origin = [tensor.detach().clone() for tensor in places]
        with torch.no_grad():
            for parameter in trainable():
                parameter.add_(parameter.grad * (knobs.optimizer_sam_rho / (grad_norm + 1e-12)))
                if knobs.precision_weights != "fp32":
                    parameter.copy_(parameter.bfloat16())

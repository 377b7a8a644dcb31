"""Number formats of the forward pass. The loss scale that fp16 needs is in loss_scale.py."""

from __future__ import annotations

import copy
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from gradstudio.core.knobs import KnobError
from gradstudio.core.sections.loop_knobs import Precision
from gradstudio.engine.runtime import out_of_memory

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def autocast(knobs: Precision, device: str) -> AbstractContextManager:
    """Return the context of a forward pass: torch's autocast, or nothing in fp32."""
    if knobs.dtype == "fp32":
        return nullcontext()
    return torch.autocast(torch.device(device).type, DTYPES[knobs.dtype])


def possible(model: nn.Module, sample: Tensor, knobs: Precision, device: str) -> str:
    """Return why the model cannot train in this number format on this device, in torch's words; empty if it can. A copy
    of the model tries it: torch's support differs from processor to processor."""
    if knobs.dtype == "fp32":
        return ""
    try:
        trial = copy.deepcopy(model).to(device)
        with autocast(knobs, device):
            outputs = trial(sample[:2].to(device))
        outputs.float().sum().backward()
    except (RuntimeError, NotImplementedError) as fault:
        if out_of_memory(fault):
            raise
        # The rest is advice about torch's own environment.
        return str(fault).strip().partition("\n")[0].partition(". ")[0]
    return ""


def check(model: nn.Module, sample: Tensor, knobs: Precision, device: str, kind: str) -> None:
    """Raise KnobError if `possible` finds a reason. The error lists the allowed number formats."""
    reason = possible(model, sample, knobs, device)
    if reason:
        others = [
            dtype
            for dtype in ("bf16", "fp32")
            if not possible(model, sample, knobs.model_copy(update={"dtype": dtype}), device)
        ]
        raise KnobError(
            f"precision.dtype = {knobs.dtype} is not allowed with model.kind = {kind} on {device}, where torch "
            f"cannot do it ({reason[:120]}); "
            f"allowed: {', '.join(others)}, or another model.kind or run.device"
        )

"""Remedies for a user's own script, as lines of code to change in it: each knob of the studio corresponds to a line
there."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gradstudio.core.experiment import parse_assignment
from gradstudio.core.knobs import Value, format_value

_OPTIMIZERS = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW", "rmsprop": "RMSprop"}
_BEFORE_STEP = " before `optimizer.step()`"
# A clip without the first line would count the loss scale as part of the norm.
_BEFORE_SCALED_STEP = " after `scaler.unscale_(optimizer)` and before `scaler.step(optimizer)`"
# A line for each knob that a script has too; `{}` is the value. The other knobs concern the studio's own models.
_LINES: dict[str, str] = {
    "optimizer.lr": "`lr={}` in `torch.optim.{optimizer}(...)`",
    "optimizer.momentum": "`momentum={}` in `torch.optim.{optimizer}(...)`",
    "optimizer.beta1": "`betas=({}, ...)` in `torch.optim.{optimizer}(...)`",
    "optimizer.beta2": "`betas=(..., {})` in `torch.optim.{optimizer}(...)`",
    "optimizer.eps": "`eps={}` in `torch.optim.{optimizer}(...)`",
    "optimizer.weight_decay": "`weight_decay={}` in `torch.optim.{optimizer}(...)`",
    "clipping.max_norm": f"`torch.nn.utils.clip_grad_norm_(model.parameters(), {{}})`{_BEFORE_STEP}",
    "clipping.clip_value": f"`torch.nn.utils.clip_grad_value_(model.parameters(), {{}})`{_BEFORE_STEP}",
    "accumulation.steps": "`(loss / {}).backward()` on {} micro-batches before `optimizer.step()`",
    "precision.init_scale": "`torch.amp.GradScaler(init_scale={})`",
    "schedule.warmup_steps": "`torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, total_iters={})`, stepped after "
    "`optimizer.step()`",
}
_CHOICES: dict[tuple[str, Value], str] = {
    ("schedule.kind", "constant"): "a schedule as long as the run (`T_max`, `total_iters`, `step_size` in steps of "
    "`optimizer.step()`), or none: this one has taken the rate down",
    ("mistakes.clip_before_unscale", False): "`scaler.unscale_(optimizer)` before the call that clips",
    ("mistakes.clip_each_micro_batch", False): "one clip" + _BEFORE_STEP + ", not one after each `backward()`",
    ("mistakes.never_zero_grad", False): "`optimizer.zero_grad()` once a step, before `loss.backward()`",
    ("mistakes.zero_grad_each_micro_batch", False): "`optimizer.zero_grad()` once a step, right after "
    "`optimizer.step()`, not before each `loss.backward()`",
    ("mistakes.clip_after_step", False): "the call that clips after `loss.backward()` and" + _BEFORE_STEP,
    ("mistakes.clip_before_backward", False): "the call that clips after `loss.backward()` and" + _BEFORE_STEP,
    ("mistakes.step_without_scaler", False): "`scaler.step(optimizer)` and `scaler.update()` in place of "
    "`optimizer.step()`",
    ("mistakes.scheduler_each_micro_batch", False): "`scheduler.step()` once after `optimizer.step()`, not after each "
    "`backward()`",
    ("clipping.kind", "none"): "no call of `clip_grad_norm_` or `clip_grad_value_`",
    ("clipping.kind", "norm"): f"`torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)`{_BEFORE_STEP}",
    ("clipping.kind", "value"): f"`torch.nn.utils.clip_grad_value_(model.parameters(), 0.5)`{_BEFORE_STEP}",
    ("clipping.kind", "per_tensor"): "`torch.nn.utils.clip_grad_norm_([parameter], 1.0)` for each parameter"
    + _BEFORE_STEP,
    ("model.init", "he"): "`torch.nn.init.kaiming_normal_(layer.weight)` for a layer whose weights are all 0",
    ("precision.dtype", "fp32"): "no `torch.autocast`",
    ("precision.dtype", "bf16"): "`torch.autocast(device, dtype=torch.bfloat16)`",
    ("precision.scaling", "dynamic"): "`scaler = torch.amp.GradScaler(device)`, `scaler.scale(loss).backward()`, "
    "`scaler.step(optimizer)`, `scaler.update()`",
    ("precision.scaling", "none"): "no `GradScaler`",
    **{("optimizer.kind", kind): f"`torch.optim.{name}(...)`" for kind, name in _OPTIMIZERS.items()},
}

# By the title or rule of a finding that no knob fixes.
OF_GRADIENTS: dict[str, tuple[str, ...]] = {
    "All gradients are exactly 0": (
        "no activation such as `relu` behind the last layer of a model whose output has no bounds",
    ),
    "unused_layers": (
        "`x` in place of `x.detach()`, and no `torch.no_grad()`, where what a layer gives is to train it; "
        "`requires_grad_(False)` where it is not",
    ),
}


def as_code(
    remedies: tuple[str, ...], optimizer: str, *, scaled: bool = False, variables: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """Return the remedies of a finding as code, without those that only apply to the studio. `optimizer` is the kind in
    force; `scaled`: the script has a GradScaler. `variables`: the script's names for its model and its optimizer."""
    lines = (_line(remedy, _OPTIMIZERS.get(optimizer, "...")) for remedy in remedies)
    if scaled:
        lines = (line.replace(_BEFORE_STEP, _BEFORE_SCALED_STEP) for line in lines)
    return tuple(dict.fromkeys(_with_names_of_script(line, variables or {}) for line in lines if line))


def _with_names_of_script(line: str, variables: Mapping[str, str]) -> str:
    """Return a line with the script's own variable names."""
    if "optimizer" in variables:
        line = re.sub(r"\boptimizer\b", variables["optimizer"], line)
    if "model" in variables:
        return re.sub(r"\bmodel\.parameters", f"{variables['model']}.parameters", line)
    return re.sub(r"`([^`]*)model\.parameters\(\)([^`]*)`", r"`\1parameters\2` on your model's parameters", line)


def _line(remedy: str, optimizer: str) -> str:
    """Return one remedy, which may consist of several assignments; "" if one of them only applies to the studio."""
    given = dict(parse_assignment(part) for part in remedy.split())
    limited = {"clipping.max_norm", "clipping.clip_value"} & given.keys()
    optimizer = _OPTIMIZERS.get(str(given.get("optimizer.kind")), optimizer)
    lines = [
        _CHOICES.get((name, value)) or _LINES.get(name, "").replace("{}", format_value(value))
        for name, value in given.items()
        if not (name == "clipping.kind" and limited)  # the call with the limit states both
        and (name, value) != ("model.init_gain", 1)  # in torch's own notation
    ]
    if {"optimizer.beta1", "optimizer.beta2"} <= given.keys():
        both = f"`betas=({format_value(given['optimizer.beta1'])}, {format_value(given['optimizer.beta2'])})`"
        return f"{both} in `torch.optim.{optimizer}(...)`"
    return " and ".join(line.replace("{optimizer}", optimizer) for line in lines) if all(lines) else ""

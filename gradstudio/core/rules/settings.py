"""The thresholds of the rules: those in the user's rules.toml, a section a rule, in place of the defaults.

[exploding_gradient]
norm = 300.0
"""

from __future__ import annotations

import dataclasses
import os
import tomllib
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import platformdirs

from gradstudio.core.knobs import KnobError, quote
from gradstudio.core.rules import NAMES, Rule

FILE = "rules.toml"
Thresholds = Mapping[str, float | int]


def user_rules() -> Path:
    """The file; it need not exist."""
    return Path(platformdirs.user_config_dir("gradstudio", appauthor=False)) / FILE


def read(path: Path | None = None) -> Mapping[str, Thresholds]:
    """The thresholds in the file, by rule; nothing where there is none. KnobError in one line for what is not allowed."""
    path = path or user_rules()
    try:
        stamp = os.stat(path)
    except FileNotFoundError:
        return {}
    except OSError as fault:
        raise KnobError(f"{path}: {(fault.strerror or str(fault)).lower()}") from None
    return _read(path, stamp.st_mtime_ns, stamp.st_size)


@lru_cache(maxsize=4)
def _read(path: Path, changed: int, size: int) -> Mapping[str, Thresholds]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as fault:
        raise KnobError(f"{path}: {(fault.strerror or str(fault)).lower()}") from None
    except ValueError as fault:  # TOML or UTF-8
        raise KnobError(f"{path}: not valid TOML: {fault}") from None
    return check(table, str(path))


def check(table: Mapping[str, Any], where: str) -> Mapping[str, Thresholds]:
    """The table, if all of it is allowed."""
    checked: dict[str, dict[str, float | int]] = {}
    for rule, values in table.items():
        if rule not in NAMES:
            raise KnobError(f"{where}: no rule {quote(rule)}; there are: {', '.join(NAMES)}")
        if not isinstance(values, dict):
            raise KnobError(f"{where}: {rule} must be a section with thresholds in it: [{rule}]")
        allowed = thresholds(rule)
        for name, value in values.items():
            if name not in allowed:
                raise KnobError(f"{where}: {rule} has no threshold {quote(name)}; it has: {', '.join(allowed) or 'none'}")
            whole = isinstance(allowed[name], int)
            number = isinstance(value, int) or (isinstance(value, float) and not whole)
            if isinstance(value, bool) or not number or not 0 <= value < float("inf") or (whole and value < 1):
                wanted = "a whole number at least 1" if whole else "a number at least 0"
                raise KnobError(f"{where}: {rule}.{name} = {quote(value)} is not allowed; allowed: {wanted} (default {allowed[name]:g})")
            checked.setdefault(rule, {})[name] = value if whole else float(value)
    return checked


def thresholds(rule: str) -> Thresholds:
    """The names of a rule's thresholds and their defaults."""
    made = _makers()[rule]()
    if not dataclasses.is_dataclass(made):
        return {}
    return {field.name: field.default for field in dataclasses.fields(made) if not field.name.startswith("_")}  # type: ignore[misc]


def make(values: Mapping[str, Thresholds]) -> list[Rule]:
    """A fresh set of every rule."""
    return [maker(**values.get(name, {})) for name, maker in _makers().items()]


@lru_cache(maxsize=1)
def _makers() -> dict[str, Callable[..., Rule]]:
    """Every rule, by name. They are imported late: presets need the names, and not numpy."""
    from gradstudio.core.rules.accumulation_mismatch import AccumulationMismatch
    from gradstudio.core.rules.clip_on_scaled_gradients import ClipOnScaledGradients
    from gradstudio.core.rules.clip_without_effect import ClipWithoutEffect
    from gradstudio.core.rules.clipping_always import ClippingAlways
    from gradstudio.core.rules.clipping_never import ClippingNever
    from gradstudio.core.rules.dead_units import DeadUnits
    from gradstudio.core.rules.exploding_gradient import ExplodingGradient
    from gradstudio.core.rules.fp16_overflow import Fp16Overflow
    from gradstudio.core.rules.fp16_underflow import Fp16Underflow
    from gradstudio.core.rules.loop_order import LoopOrder
    from gradstudio.core.rules.loss_not_decreasing import LossNotDecreasing
    from gradstudio.core.rules.loss_oscillating import LossOscillating
    from gradstudio.core.rules.loss_spike import LossSpike
    from gradstudio.core.rules.nonfinite import NonfiniteGradient, NonfiniteLoss
    from gradstudio.core.rules.poor_initialization import PoorInitialization
    from gradstudio.core.rules.saturated_activation import SaturatedActivation
    from gradstudio.core.rules.scale_collapse import ScaleCollapse
    from gradstudio.core.rules.update_ratio_high import UpdateRatioHigh
    from gradstudio.core.rules.update_ratio_low import UpdateRatioLow
    from gradstudio.core.rules.vanishing_gradient import VanishingGradient

    made = (
        NonfiniteLoss, NonfiniteGradient, ExplodingGradient, VanishingGradient, LossNotDecreasing, LossOscillating, LossSpike, DeadUnits,
        SaturatedActivation, UpdateRatioHigh, UpdateRatioLow, PoorInitialization, ClippingAlways, ClippingNever, Fp16Underflow, Fp16Overflow,
        ScaleCollapse, AccumulationMismatch, ClipWithoutEffect, ClipOnScaledGradients, LoopOrder,
    )  # fmt: skip
    return {maker.rule: maker for maker in made}  # type: ignore[return-value]

"""What a program is given: the knobs, the facts of its plan, and the three functions of a studio file."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from gradstudio.program.plan import Plan

Function = TypeVar("Function")

if TYPE_CHECKING:
    knobs: Any  # every knob as an attribute, with the value in force
    plan: Plan
    TIMELINE: list[tuple[int, str, Any]]  # from this step on, this knob has this value
    build_model: Callable[..., Any]
    get_batch: Callable[..., Any]
    compute_loss: Callable[..., Any]
    step: int  # of the loop, as are those that follow, for the pieces that stand in it
    passed: int
    shares: Any
    index: int
    losses: Any
    norms: Any
    usual: Any
    step_loss: Any
    figures: Any
    grad_norm: Any
    micro_batches: Any
    tell: Callable[[str], None]  # hears which part of a step begins


def inline(function: Function) -> Function:
    """Mark a function whose body is written into the program wherever it is called."""
    return function

"""Derivatives that a script defines itself, as an autograd function: observed as calls of torch, and replayed from them
without the code that made them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction

from gradstudio.engine.torch_internals.autograd_nodes import results_of_node

if TYPE_CHECKING:
    from gradstudio.crash.call_log import CallLog, LoggedCall, Ref
    from gradstudio.crash.recorded_pass import Pass
    from gradstudio.session.files.crash_file import RecordedDerivative


class LoggedDerivative(NamedTuple):
    """The derivative of result number `of`. `calls` turn tensor number `gradient`, the gradient of the result, into
    those of its inputs, `gives`."""

    name: str
    of: int
    takes: list[Ref | None]
    gradient: int
    calls: list[LoggedCall]
    gives: list[Ref | None]
    module: str
    line: str


class NotHeard(Exception):
    """Something was computed where no call of torch is observed."""


def name_of_own(tensor: Tensor) -> str:
    """Return the name of the autograd function with which a script defines the derivative of a tensor; "" if torch
    does."""
    node = tensor.grad_fn
    return type(node).__name__.removesuffix("Backward") if isinstance(node, BackwardCFunction) else ""


def logged_derivative(log: CallLog, tensor: Tensor, line: str) -> LoggedDerivative | None:
    """Call the derivative of a tensor once, and return its calls; None if not all of it can be observed."""
    node: Any = tensor.grad_fn
    sources = [None if source is None else log.result_of(source, place) for source, place in node.next_functions]
    shapes, of = results_of_node(node), log.place_of(tensor)
    is_known = all((one is None) == (other[0] is None) for one, other in zip(sources, node.next_functions, strict=True))
    if of is None or not is_known or not shapes:
        return None
    gradients = [torch.zeros(each.shape, dtype=each.dtype, device=tensor.device) for each in shapes]
    own = gradients[tensor.output_nr].fill_(1)
    takes = [None if each is None else log.ref(each) for each in sources]
    with log.aside() as calls, log, torch.no_grad():  # torch takes a mode off its stack while that is called
        number = log.give(own)
        try:
            given = node.apply(*gradients)
            given = given if isinstance(given, tuple) else (given,)
            gives = [None if each is None else log.ref(each) for each in given]
        except Exception:  # from the script's own code, or NotHeard
            return None
    return LoggedDerivative(name_of_own(tensor), of, takes, number, calls, gives, log.module(), line)


@contextmanager
def without_reentrant_checkpoints() -> Iterator[None]:
    """Call what a script checkpoints directly, as its values are the same."""
    checkpoints: Any = sys.modules.get("torch.utils.checkpoint")
    if checkpoints is None:
        yield
        return
    function = checkpoints.CheckpointFunction
    function.apply = staticmethod(lambda called, _preserves, *given: called(*given))
    try:
        yield
    finally:
        del function.apply


class _Recorded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, result: Callable[[], Tensor], derive: Callable[[Tensor], Any], *_: Any) -> Tensor:
        ctx.derive = derive
        return result().detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return None, None, *ctx.derive(gradients[0])


def with_own_derivative(made: Pass, number: int, own: RecordedDerivative, *given: Any) -> Tensor:
    """Return tensor number `number` of a pass with its recorded derivative."""

    def derive(gradient: Tensor) -> list[Tensor | None]:
        made.tensors[own.gradient] = gradient
        made.part(own.calls).run()
        return [None if key is None else made.tensor(key) for key in own.gives]

    return _Recorded.apply(lambda: made.tensor(number), derive, *given)

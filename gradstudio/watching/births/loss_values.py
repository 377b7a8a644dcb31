"""The known values in loss code, the part of autograd's graph between the outputs of a model and the loss: its
operations were not watched, so these are the tensors that autograd has saved, and what can be recomputed from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gradstudio.core.provenance import ProvenanceUnknown, operation_of
from gradstudio.engine.operation_watcher import values_of
from gradstudio.engine.torch_internals.autograd_nodes import results_of_node
from gradstudio.watching.births.kept_pass import KeptPass
from gradstudio.watching.births.operation_lines import LossLines, operand
from gradstudio.watching.births.saved_tensors import EXPONENT, LABELLED, MEAN, saved_of, signed
from gradstudio.watching.script.living_objects import living_objects
from gradstudio.watching.script.model_layers import ModelLike

MOST_NODES = 10_000  # number of graph nodes searched
MOST_HELD = 40  # operations of loss code; longer code is searched before the backward pass
VIEWS = {"t", "transpose", "view", "reshape", "permute", "expand", "to_copy", "unsafe_view", "squeeze", "unsqueeze"}
# the first saved one is the most informative: ctc_loss also has a table of -Inf
_RESULTS = ("result", "result0", "result1")
# Index of a saved tensor among the inputs, counted from the last of them if negative.
_PLACES = {
    "self": 0, "input": 0, "x1": 0, "A": 0, "other": 1, "target": 1, "x2": 1, EXPONENT: 1,
    "mat1": -2, "batch1": -2, "vec1": -2, "mat2": -1, "batch2": -1, "vec2": -1,
}  # fmt: skip
ROLES = {"target": "target", "other": "second operand", "self": "input", "weight": "weight"}

# The operations that can be recomputed, given a node, the number of its result, and its inputs.
_UNARY = (
    "log", "log2", "log10", "log1p", "acos", "asin", "atan", "cosh", "sinh", "sin", "cos", "abs", "neg", "exp", "exp2",
    "expm1", "sqrt", "rsqrt", "reciprocal", "sigmoid", "tanh", "relu", "erf", "erfinv", "atanh", "lgamma",
)  # fmt: skip
_AGAIN: dict[str, Callable[..., Tensor]] = {
    **{name: (lambda node, number, x, of=name: getattr(torch, of)(x)) for name in _UNARY},
    "mul": lambda node, number, x, y: x * y,
    "div": lambda node, number, x, y: x / y,
    "add": lambda node, number, x, y: x + node._saved_alpha * y,
    "sub": lambda node, number, x, y: x - node._saved_alpha * y,
    "rsub": lambda node, number, x, y: y - node._saved_alpha * x,
    "pow": lambda node, number, x, y: x**y,
    **dict.fromkeys(("mm", "bmm", "mv", "dot"), lambda node, number, x, y: x @ y),
    "sum": lambda node, number, x: x.sum(list(map(signed, getattr(node, "_saved_dim", ()))) or None),
    "mean": lambda node, number, x: x.mean(list(map(signed, getattr(node, "_saved_dim", ()))) or None),
    "clamp": lambda node, number, x: x.clamp(node._saved_min, node._saved_max),
    "clamp_min": lambda node, number, x: x.clamp_min(node._saved_min),
    "clamp_max": lambda node, number, x: x.clamp_max(node._saved_max),
    "select": lambda node, number, x: x.select(signed(node._saved_dim), signed(node._saved_index)),
    "slice": lambda node, number, x: x[(slice(None),) * (signed(node._saved_dim) % x.dim()) + (_slice(node),)],
    "unbind": lambda node, number, x: x.unbind(signed(node._saved_dim))[number],
    "split": lambda node, number, x: x.split(node._saved_split_size, signed(node._saved_dim))[number],
    "t": lambda node, number, x: x.t(),
    "transpose": lambda node, number, x: x.transpose(signed(node._saved_dim0), signed(node._saved_dim1)),
    "permute": lambda node, number, x: x.permute(list(map(signed, node._saved_dims))),
    "expand": lambda node, number, x: x.expand(results_of_node(node)[0].shape),
    "to_copy": lambda node, number, x: x.to(results_of_node(node)[0].dtype),
    **dict.fromkeys(
        ("view", "reshape", "unsafe_view", "squeeze", "unsqueeze", "clone", "alias"),
        lambda node, number, x: x.reshape(results_of_node(node)[0].shape),
    ),
}  # fmt: skip


class Input(NamedTuple):
    """One input of an operation. `tensor` is None if it is unknown, `maker` if it takes no gradient."""

    role: str
    tensor: Tensor | None
    maker: Any


class LossCode:
    """The operations behind some roots, in the order in which they were computed. `known` are the results that the
    caller has; `past_mended`: including those before a `nan_to_num`."""

    def __init__(
        self, roots: Sequence[Any], mark: str, model: ModelLike, known: Mapping[tuple[Any, int], Tensor] | None = None,
        *, past_mended: bool = False,
    ) -> None:  # fmt: skip
        self._mark = mark
        every = nodes_behind(roots, mark, past_mended=past_mended)
        self.nodes = in_order(node for node in every if mark not in node.metadata and not is_leaf(node))
        self.lines = LossLines(self.nodes, model)
        self._results: dict[Any, dict[int, Tensor | None]] = {}  # of each node, by the number of the result
        for (node, number), tensor in {**_surviving(self.nodes), **(known or {})}.items():
            self._results.setdefault(node, {})[number] = tensor
        for node in self.nodes:
            for each, (maker, number) in zip(self._read_inputs(node), node.next_functions, strict=True):
                if maker is not None and each.tensor is not None and operation_of(node.name()) != "nan_to_num":
                    self._results.setdefault(maker, {}).setdefault(number, each.tensor)

    def inputs(self, node: Any) -> list[Input]:
        """Return the inputs of an operation: those that take a gradient and their operands, then other saved
        tensors."""
        numbers = [number for _, number in node.next_functions]
        inputs = self._read_inputs(node)
        for place, (each, number) in enumerate(zip(inputs, numbers, strict=True)):
            if each.tensor is None:
                tensor = self._script_operand(node, place) if each.maker is None else self._result(each.maker, number)
                inputs[place] = each._replace(tensor=tensor)
        beside = {
            name: tensor for name, tensor in saved_of(node).items()
            if name not in (*_RESULTS, EXPONENT) and _place(name, len(numbers)) not in range(len(numbers))
        }  # fmt: skip
        return inputs + [Input(ROLES.get(name, name), tensor, None) for name, tensor in beside.items()]

    def _read_inputs(self, node: Any) -> list[Input]:
        makers = [maker for maker, _ in node.next_functions]
        saved = {_place(name, len(makers)): (name, tensor) for name, tensor in saved_of(node).items()}
        return [
            Input(ROLES.get(name, name), tensor, maker)
            for place, maker in enumerate(makers)
            for name, tensor in [saved.get(place, ("other" if place else "self", None))]
        ]

    def result_of(self, node: Any) -> Tensor | None:
        """Return the result of an operation, or a value that is finite if the result is; None if neither is known."""
        self._result(node, 0)
        known = [tensor for tensor in self._results[node].values() if tensor is not None]
        if known:
            return next((tensor for tensor in known if not values_of(tensor).finite), known[0])
        saved, operation = saved_of(node), operation_of(node.name())
        if known := [saved[name] for name in _RESULTS if name in saved]:
            return known[0]
        if operation in LABELLED and getattr(node, "_saved_reduction", None) == MEAN:
            return saved["self"].new_zeros(()) / saved["total_weight"]  # finite, unless it belongs to an ignored label
        if operation == "mse_loss" and {"self", "target"} <= saved.keys():
            return (saved["self"] - saved["target"]).square()
        if operation == "div" and "other" in saved and bool((saved["other"] == 0).any()):
            # 0 or not, division by 0 makes it non-finite
            return torch.ones((), device=saved["other"].device) / saved["other"]
        return None

    def _result(self, node: Any, number: int) -> Tensor | None:
        results = self._results.setdefault(node, {})
        if number not in results:
            results[number] = None
            results[number] = self._compute(node, number)
        return results[number]

    def _compute(self, node: Any, number: int) -> Tensor | None:
        if self._mark in node.metadata:
            output = node.metadata.get((self._mark, number))
            return None if output is None else node.metadata[self._mark].result(output)
        if is_leaf(node):
            return node.variable.detach()
        saved, operation = saved_of(node), operation_of(node.name())
        if "result" in saved:
            return saved["result"]
        if operation not in _AGAIN:
            return None
        inputs = [each.tensor for each in self.inputs(node)[: len(node.next_functions)]]
        if operation == "pow" and len(inputs) == 1:
            inputs.append(saved.get(EXPONENT))
        if operation == "rsub" and len(inputs) == 1:
            inputs.append(self._script_operand(node, 0))
        if any(each is None for each in inputs):
            return None
        try:
            with torch.no_grad():
                result = _AGAIN[operation](node, number, *inputs)
        except (RuntimeError, TypeError, AttributeError, IndexError):
            return None
        if not results_of_node(node):
            return result
        shape = shape_of(node, number)
        return result.reshape(shape) if result.numel() == shape.numel() else None

    def _script_operand(self, node: Any, place: int) -> Tensor | None:
        """Return an operand that takes no gradient, from the script's own variables."""
        if operation_of(node.name()) not in ("add", "sub", "rsub"):
            return None
        site = self.lines.site_of(node)
        value = None if site is None else operand(site, place)
        fits = value is not None and (value.dim() == 0 or _fits(value.shape, shape_of(node, 0)))
        return value if fits else None


def _surviving(nodes: Sequence[Any]) -> dict[tuple[Any, int], Tensor]:
    """Return the results of these nodes that still exist in the script, for example in a variable, and were never
    changed in place."""
    wanted = set(nodes)
    results: dict[tuple[Any, int], Tensor] = {}
    for each in living_objects(Tensor):
        with suppress(RuntimeError):  # it is being released, or has no values
            if each.grad_fn in wanted and not each._version:
                results[each.grad_fn, each.output_nr] = each.detach()
    return results


def _fits(shape: torch.Size, whole: torch.Size) -> bool:
    try:
        return torch.broadcast_shapes(shape, whole) == whole
    except RuntimeError:
        return False


def shape_of(node: Any, number: int = 0) -> torch.Size:
    """Return the shape of a result of a node; the empty shape if torch does not report it."""
    told = results_of_node(node)
    return torch.Size(told[number].shape) if told and number < len(told) else torch.Size([0])


def in_order(nodes: Iterable[Any]) -> list[Any]:
    """Return nodes in the order in which they were computed."""
    return sorted(nodes, key=lambda node: node._sequence_nr())


def is_leaf(node: Any) -> bool:
    return node.name().endswith("AccumulateGrad")


def nodes_behind(roots: Sequence[Any], mark: str, most: int = MOST_NODES, *, past_mended: bool = True) -> list[Any]:
    """Return the graph behind the roots, inputs first, as far as the outputs of the model, which are included.
    `past_mended`: also what precedes a `nan_to_num`."""
    nodes: dict[Any, None] = {}
    waiting = [(node, False) for node in roots if node is not None]
    seen: set[Any] = set()
    while waiting:
        node, done = waiting.pop()
        if done:
            nodes[node] = None
        elif node not in seen:
            seen.add(node)
            waiting.append((node, True))
            if mark not in node.metadata and (past_mended or operation_of(node.name()) != "nan_to_num"):
                waiting += [(following, False) for following, _ in node.next_functions if following is not None]
        if len(seen) > most:
            raise ProvenanceUnknown(f"the loss code has more than {most:,} operations")
    return list(nodes)


def passes_of(roots: Sequence[Any], mark: str) -> list[KeptPass]:
    """Return the passes of the model from which the loss behind some nodes was computed, in order."""
    outputs = in_order(node for node in nodes_behind(roots, mark) if mark in node.metadata)
    return list(dict.fromkeys(node.metadata[mark] for node in outputs))


def weight_behind(node: Any) -> nn.Parameter | None:
    """Return the weight that a node produces, directly or as a view; None if it produces none."""
    while node is not None and operation_of(node.name()) in VIEWS and len(node.next_functions) == 1:
        node = node.next_functions[0][0]
    weight = getattr(node, "variable", None) if node is not None and is_leaf(node) else None
    return weight if isinstance(weight, nn.Parameter) else None


def _place(saved: str, inputs: int) -> int | None:
    """Return the index of a saved tensor among `inputs` inputs of an operation; None if unknown."""
    place = _PLACES.get(saved)
    return place if place is None or place >= 0 else inputs + place


def _slice(node: Any) -> slice:
    return slice(signed(node._saved_start), signed(node._saved_end), node._saved_step)

"""The birth of a non-finite value in loss code: the part of autograd's graph between the outputs of a model and the
loss. Its operations were not watched: unknown values are inferred from the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gradstudio.core.diagnosis.birth_remedies import CHANGED_BY_A_HOOK, WRITTEN_AS
from gradstudio.core.provenance import Phase, Provenance, ProvenanceUnknown, operation_of
from gradstudio.engine import birth
from gradstudio.engine.operation_watcher import NOTHING, Values, WatchedOperation, together, values_of
from gradstudio.watching.births import operation_lines
from gradstudio.watching.births.kept_pass import all_finite
from gradstudio.watching.births.loss_derivatives import Derivative
from gradstudio.watching.births.loss_nodes import is_steep
from gradstudio.watching.births.loss_operands import (
    cause_behind_a_mask,
    cause_in_a_divergence,
    divides_by_0,
    is_masked,
    written_as,
)
from gradstudio.watching.births.loss_values import (
    VIEWS,
    Input,
    LossCode,
    in_order,
    is_leaf,
    nodes_behind,
    weight_behind,
)
from gradstudio.watching.births.saved_tensors import is_whole_power, saved_of
from gradstudio.watching.script.model_layers import ModelLike

BEFORE_THE_LOSS = " before the loss"  # in a sentence about the value of a weight by then
OF_ANOTHER = "a weight of another model"  # in a sentence about why a birth is unknown
# Operations that produce NaN only from non-finite inputs.
_HANDING_ON = VIEWS | {
    "add", "sub", "rsub", "neg", "mul", "sum", "mean", "cat", "stack", "select", "slice", "unbind", "split", "abs",
    "relu", "clamp", "clamp_min", "clamp_max", "clone", "index", "gather", "mse_loss", "l1_loss", "smooth_l1_loss",
    "huber_loss", "where", "masked_fill", "exp", "sigmoid", "tanh", "mm", "bmm", "mv", "dot", "addmm", "index_select",
}  # fmt: skip
MOST_BEFORE, _USUAL = 4, 1e9  # consecutive operations, and numbers none of which overflows
_TARGETS = "it takes no gradient, as a target, an advantage or a mask"


def born_in(roots: Sequence[Tensor], mark: str, model: ModelLike) -> Provenance | None:
    """Return the operation of the loss code with the first non-finite result. The outputs of the model are finite."""
    known = {(root.grad_fn, root.output_nr): root.detach() for root in roots if root.grad_fn is not None}
    search = _Search(LossCode([root.grad_fn for root in roots], mark, model, known), mark, model)
    if first_birth := search.first_in(search.code.nodes):
        return first_birth
    if not search.code.nodes:
        return None
    broken = next((root.grad_fn for root in roots if not values_of(root).finite), search.code.nodes[-1])
    return search.birth_at(broken)


def born_in_a_pass(roots: Sequence[Tensor], model: ModelLike) -> Provenance | None:
    """Return the operation with the first NaN result, in the whole graph behind a loss; None if autograd has saved too
    little. Inf is ignored: inside a model it may come from a mask."""
    code = LossCode([root.grad_fn for root in roots], "", model)
    for node in code.nodes:
        tensor, inputs = code.result_of(node), code.inputs(node)
        if tensor is None or not values_of(tensor).nan or any(each.tensor is None for each in inputs):
            continue
        if inputs and all_finite([each.tensor for each in inputs]):
            source = operation_lines.line_in_model(operation_of(node.name()), model)
            return _provenance("forward", [node], inputs, tensor, source)
    return None


class _Search:
    """Searches for the first non-finite value in loss code."""

    def __init__(self, code: LossCode, mark: str, model: ModelLike) -> None:
        self.code, self._mark, self._model = code, mark, model

    def first_in(self, nodes: Sequence[Any]) -> Provenance | None:
        """Return the birth in the first of these operations whose result is known to be non-finite, or that includes
        the Inf of a mask."""
        masked: set[Any] = set()  # operations whose Inf is that of a mask
        for node in nodes:
            inputs, tensor = self.code.inputs(node), self.code.result_of(node)
            of_a_mask = any(each.maker in masked for each in inputs)
            if is_masked(node, tensor, of_a_mask):
                masked.add(node)
                continue
            if getattr(node, "_saved_self_sym_numel", 1) == 0 and operation_of(node.name()) == "mean":
                return self._as_provenance([node], [], tensor, cause=birth.MEAN_OF_NONE)
            if (singular := _singular_behind(node)) is not None:
                return self._as_provenance([singular], self.code.inputs(singular), tensor, cause=birth.SINGULAR)
            broken = next(
                (each for each in inputs if each.tensor is not None and not values_of(each.tensor).finite), None
            )
            if of_a_mask and tensor is not None and not values_of(tensor).finite:
                return self._as_provenance([node], inputs, tensor, cause=cause_behind_a_mask(node, tensor))
            if broken is not None and broken.maker not in masked and operation_of(node.name()) != "nan_to_num":
                return self._of_operand(node, broken, tensor)
            if tensor is not None and not values_of(tensor).finite:
                return self.birth_at(node)
        return None

    def birth_at(self, node: Any) -> Provenance:
        """Return the birth when the result of this operation is non-finite: in it, in an operand without a gradient, or
        before it if its inputs are unknown."""
        while True:
            inputs, given = self.code.inputs(node), self.code.result_of(node)
            unknown = [each for each in inputs if each.tensor is None]
            if not unknown:
                return self._as_provenance([node], inputs, given)
            if divides_by_0(node):
                known = [each for each in inputs if each.tensor is not None]
                return self._as_provenance([node], known, given, cause="a division by 0 is not finite")
            if (why := self._nan_by_itself(node, unknown, given)) is not None:
                return self._as_provenance([node], [], given, cause=why)
            if len(unknown) > 1 or not _hands_on(node, inputs) or not (given is None or values_of(given).nan):
                break
            (last,) = unknown  # the others are finite, so this one contains the NaN
            if last.maker is None or is_leaf(last.maker):
                return self._of_operand(node, last, given)
            if self._mark in last.maker.metadata:
                break
            node = last.maker
        self._look_at_weights(node)
        told = "is not finite" if given is None else f"holds {values_of(given).broken}"
        cause = f"its result {told}; what went in is not known, as autograd has not saved it"
        return self._as_provenance([node], [], given, is_birth=False, cause=cause)

    def _nan_by_itself(self, node: Any, unknown: Sequence[Input], given: Tensor | None) -> str | None:
        """Return why an operation produced NaN from an unknown value that is known not to be NaN."""
        why = birth.NAN_OF_A_NUMBER.get(operation_of(node.name()))
        if why is None or given is None or not values_of(given).nan or len(unknown) > 1:
            return None
        return None if self._may_be_nan(unknown[0].maker, MOST_BEFORE) else why

    def _may_be_nan(self, node: Any, before: int) -> bool:
        """Return whether a result may be NaN: not if it is computed from usual numbers by operations that produce
        none."""
        if node is None or not before or is_leaf(node):
            return True
        if (known := self.code.result_of(node)) is not None:
            return not float(known.abs().max()) < _USUAL
        if operation_of(node.name()) not in _HANDING_ON and not is_whole_power(node):
            return True
        for each in self.code.inputs(node):
            if each.tensor is None and self._may_be_nan(each.maker, before - 1):
                return True
            if each.tensor is not None and not float(each.tensor.abs().max()) < _USUAL:
                return True
        return False

    def _of_operand(self, node: Any, broken: Input, tensor: Tensor | None) -> Provenance:
        """Return the non-finite input of an operation that no operation of the graph produced."""
        weight = weight_behind(broken.maker)
        if weight is not None and not (values := values_of(weight.detach())).finite:
            raise ProvenanceUnknown(f"{_name_of_weight(weight, self._model)} held {values.broken}{BEFORE_THE_LOSS}")
        held = NOTHING._replace(nan=values_of(tensor).nan if tensor is not None else 1)
        what = "NaN" if broken.tensor is None else (held := values_of(broken.tensor)).broken
        name = operation_lines.name_of_broken(broken.tensor)
        cause = f"its {broken.role}{f', `{name}`,' if name else ''} holds {what}, which the model did not compute"
        cause = cause_in_a_divergence(node) or (cause if name else f"{cause}: {_TARGETS}")
        made_at = operation_lines.line_of_variable(name)
        return self._as_provenance([node], [broken], tensor, held, cause=cause, source=made_at)

    def _as_provenance(
        self, nodes: Sequence[Any], inputs: Sequence[Input], given: Tensor | None, held: Values | None = None,
        *, phase: Phase = "loss", is_birth: bool = True, cause: str = "", source: str = "",
    ) -> Provenance:  # fmt: skip
        source = source or self.source_of(nodes)
        told = _provenance(phase, nodes, inputs, given, source, held, is_birth=is_birth, cause=cause)
        form = written_as(nodes[0], self.code.nodes) if not cause or not is_birth else ""
        return replace(told, cause=f"{told.cause}: {WRITTEN_AS} {form}") if form else told

    def source_of(self, nodes: Sequence[Any]) -> str:
        """Return the line of the script that computed one of these; otherwise the line of the backward pass."""
        sites = [self.code.lines.site_of(node) for node in nodes]
        places = {site.place if site else None for site in sites}
        place = places.pop() if len(places) == 1 else None
        return place.text if place else operation_lines.begins_at()

    def _look_at_weights(self, node: Any) -> None:
        """Raise ProvenanceUnknown if an operation uses a non-finite weight."""
        for leaf in filter(is_leaf, nodes_behind([node], self._mark)):
            if (weight := weight_behind(leaf)) is not None and not (values := values_of(weight.detach())).finite:
                raise ProvenanceUnknown(f"{_name_of_weight(weight, self._model)} held {values.broken}{BEFORE_THE_LOSS}")

    # ---- the gradient is non-finite

    def of_derivative(self, derivative: Derivative) -> Provenance:
        """Return the birth of a non-finite result of a derivative whose incoming gradient was finite: in it, or in a
        non-finite value of the loss code although the loss is finite."""
        inputs, result = self.code.inputs(derivative.node), self.code.result_of(derivative.node)
        if not all_finite([*(each.tensor for each in inputs), result]):
            before = {id(node) for node in nodes_behind([derivative.node], self._mark)}
            if birth_before := self.first_in([node for node in self.code.nodes if id(node) in before]):
                return birth_before
        known = [each for each in inputs if each.tensor is not None]
        known += [Input("result", result, None)] * (result is not None)
        came = [Input("gradient", tensor, None) for tensor in derivative.came if tensor is not None]
        gave = together([values_of(tensor) for tensor in derivative.gave if tensor is not None])
        source = self.source_of([derivative.node])
        told = _provenance("backward", [derivative.node], [*came, *known], result, source, gave=gave)
        form = written_as(derivative.node, self.code.nodes)
        return replace(
            told, taken=birth.inputs_in_words([values_of(each.tensor) for each in known if each.tensor is not None]),
            cause=f"{told.cause}: {WRITTEN_AS} {form}" if form else told.cause,
        )  # fmt: skip


def born_behind(
    roots: Sequence[Any], mark: str, model: ModelLike, heard: Sequence[Derivative],
    micro_batch: int, micro_batches: int, *, nodes_alone: bool = True,
) -> Provenance:  # fmt: skip
    """Return the operation of the loss code in whose derivative a gradient became infinite or NaN, after a backward
    pass, or, if `nodes_alone` may tell, the candidates for it. ProvenanceUnknown if there is none."""
    nodes = [node for node in nodes_behind(roots, mark) if mark not in node.metadata and not is_leaf(node)]
    if not nodes:
        raise ProvenanceUnknown("the gradient that came back to the model is not finite, and its graph is gone")
    search = _Search(LossCode(roots, mark, model, past_mended=True), mark, model)
    ours = set(map(id, nodes))
    for each in heard:
        if id(each.node) in ours and all_finite(each.came) and not all_finite(each.gave):
            return replace(search.of_derivative(each), micro_batch=micro_batch, micro_batches=micro_batches)
    if not nodes_alone:
        raise ProvenanceUnknown("all was finite when the step was made again")
    heard_nodes = {id(each.node) for each in heard}
    steep = [node for node in nodes if is_steep(node, mark) and id(node) not in heard_nodes]
    which = " or ".join(dict.fromkeys(operation_of(node.name()) for node in steep or nodes))
    cause = f"the gradient that the loss code gave the model is not finite: the derivative of {which} is not"
    if not steep:
        cause = (
            f"the gradient that the loss code gave the model is not finite, though {which} has a finite derivative of "
            f"finite values: it grew too large, or {CHANGED_BY_A_HOOK}"
        )
    told = _provenance("backward", in_order(steep or nodes), [], None, search.source_of(steep or nodes), cause=cause)
    return replace(told, micro_batch=micro_batch, micro_batches=micro_batches)


def _provenance(
    phase: Phase, nodes: Sequence[Any], inputs: Sequence[Input], tensor: Tensor | None, source: str,
    values: Values | None = None, *, gave: Values | None = None, is_birth: bool = True, cause: str = "",
) -> Provenance:  # fmt: skip
    """Return what is known of an operation, or of the candidates. `held`: the inputs, if they are not tensors; `gave`:
    the output, if it is not the result; `is_birth`: not merely where the value was first seen."""
    names = " or ".join(dict.fromkeys(node.name() for node in nodes))
    taken = [values] if values is not None else [values_of(each.tensor) for each in inputs if each.tensor is not None]
    gave = gave or (values_of(tensor) if tensor is not None else together([]))
    of_derivative = phase == "backward"
    exponent = getattr(nodes[0], "_saved_exponent", None) if len(nodes) == 1 else None
    operation = WatchedOperation(
        names if of_derivative else operation_of(names), phase, "", names if of_derivative else "", 0,
        torch.float32 if tensor is None else tensor.dtype, taken, gave, [], (), set(), None,
        float(exponent) if isinstance(exponent, (int, float)) and exponent < 0 else None,
    )  # fmt: skip
    told = replace(
        birth.operation_record(operation, is_known=is_birth), name=names, of="" if phase == "loss" else names
    )
    return birth.provenance(
        [operation], [0], (), operation=names, cause=cause or birth.cause_of(operation), source=source,
        chain=(told if tensor is not None else replace(told, dtype=""),), taken=birth.inputs_in_words(taken),
    )  # fmt: skip


def _singular_behind(node: Any) -> Any:
    """Return the determinant whose logarithm a node computes, if that is non-finite: of 0, or `logdet` of a negative
    one."""
    operation, of = operation_of(node.name()), node
    if operation == "where":
        of = next((each for each, _ in node.next_functions if each is not None), None)
    if of is None or operation_of(of.name()) != "linalg_slogdet" or (sign := saved_of(of).get("sign")) is None:
        return None
    return of if bool((sign <= 0 if operation == "where" else sign == 0).any()) else None


def _name_of_weight(weight: Tensor, model: ModelLike) -> str:
    own = next((name for name, each in model.named_parameters() if each.data_ptr() == weight.data_ptr()), "")
    return f"the weight {own}" if own else OF_ANOTHER if next(iter(model.named_parameters()), None) else "a weight"


def _hands_on(node: Any, inputs: Sequence[Input]) -> bool:
    """Return whether an operation produces NaN only from non-finite inputs."""
    operation = operation_of(node.name())
    by = inputs[-1].tensor if operation == "div" else None
    return operation in _HANDING_ON or (by is not None and not values_of(by).zeros)

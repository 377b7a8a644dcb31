"""Where a value that is not finite was born in loss code: the part of autograd's graph between the outputs of a model
and the loss. Its operations were not watched, so only what autograd has saved of them is known."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gradstudio.core.diagnosis.birth_remedies import CHANGED_BY_A_HOOK
from gradstudio.core.diagnosis.cause_ranking import BEYOND, MEAN_OF_NONE, OF_NEGATIVE
from gradstudio.core.provenance import Operation, Phase, Provenance, ProvenanceUnknown, operation_of
from gradstudio.core.text import number, plural
from gradstudio.engine.operation_watcher import Values, largest_of, together, values_of
from gradstudio.watching.births.kept_pass import KeptPass
from gradstudio.watching.births.model_code import taken_by
from gradstudio.watching.script import source_lines
from gradstudio.watching.script.model_layers import ModelLike

MOST_NODES = 10_000  # of autograd's graph that are looked at

BEFORE_THE_LOSS = " before the loss"  # in a sentence that says what a weight held by then
OF_ANOTHER = "a weight of another model"  # in a sentence that says why a birth is unknown
_SAVED = "gradstudio saved"  # of a node: what autograd has saved for it
MOST_HELD = 40  # operations of loss code; longer code is looked at before the backward pass
BEGAN = "the backward pass began at"  # a source where no line of the operation is known

# The operations that autograd saves the inputs of, to be computed again.
_AGAIN: dict[str, Callable[..., Tensor]] = {
    "log": lambda saved: saved["self"].log(),
    "log2": lambda saved: saved["self"].log2(),
    "log10": lambda saved: saved["self"].log10(),
    "log1p": lambda saved: saved["self"].log1p(),
    "div": lambda saved: saved.get("self", torch.ones(())) / saved["other"],  # 0 or not, it is not finite by 0
    "mul": lambda saved: saved["self"] * saved["other"],
    "pow": lambda saved: saved["self"] ** saved["exponent"],
    "mse_loss": lambda saved: (saved["self"] - saved["target"]).square(),
    "acos": lambda saved: saved["self"].acos(),
    "asin": lambda saved: saved["self"].asin(),
    "cosh": lambda saved: saved["self"].cosh(),
    "sinh": lambda saved: saved["self"].sinh(),
}
_WHY: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "log": (lambda tensor: tensor <= 0, "the logarithm of 0 is -Inf, and of a negative number NaN"),
    "log2": (lambda tensor: tensor <= 0, "the logarithm of 0 is -Inf, and of a negative number NaN"),
    "log10": (lambda tensor: tensor <= 0, "the logarithm of 0 is -Inf, and of a negative number NaN"),
    "log1p": (lambda tensor: tensor <= -1, "log1p of -1 is -Inf, and of less NaN"),
}
# Operations whose derivative is finite wherever they are. Of any other it may be infinite or NaN although the result is
# finite, and nothing is known of a Function of the script.
_TAME = frozenset((
    "add", "sub", "rsub", "neg", "mean", "sum", "abs", "sgn", "where", "clamp", "clamp_min", "clamp_max", "max", "min",
    "maximum", "minimum", "amax", "amin", "sort", "topk", "mm", "bmm", "mv", "dot", "addmm", "baddbmm", "convolution",
    "relu", "leaky_relu", "elu", "gelu", "silu", "sigmoid", "tanh", "softplus", "log_sigmoid", "softmax", "log_softmax",
    "logsumexp", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "nll_loss", "nll_loss2d",
    "binary_cross_entropy_with_logits", "sin", "cos", "cumsum", "native_dropout", "embedding", "index", "index_select",
    "gather", "select", "slice", "split", "split_with_sizes", "unbind", "stack", "cat", "repeat", "diagonal", "flip",
    "roll", "masked_fill", "masked_select", "scatter", "clone", "alias", "copy_slices", "unfold", "tril", "triu",
    "native_layer_norm", "native_batch_norm", "upsample_nearest2d", "upsample_bilinear2d",
))  # fmt: skip
# Those that give a part of what they take, by their node and by which of their results it is.
_PARTS: dict[str, Callable[[Tensor, Any, int], Tensor]] = {
    "select": lambda of, node, _: of.select(_signed(node._saved_dim), _signed(node._saved_index)),
    "slice": lambda of, node, _: of[(slice(None),) * (_signed(node._saved_dim) % of.dim()) + (_sliced(node),)],
    "unbind": lambda of, node, number: of.unbind(_signed(node._saved_dim))[number],
    "split": lambda of, node, number: of.split(node._saved_split_size, _signed(node._saved_dim))[number],
}
VIEWS = {"t", "transpose", "view", "reshape", "permute", "expand", "to_copy", "unsafe_view", "squeeze", "unsqueeze"}
_RESULTS = ("result", "result0", "result1")  # the first that was saved tells most: ctc_loss has a table of -Inf too
LABELLED = ("nll_loss", "nll_loss2d")  # losses that leave some labels out
_COUNTS = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
MEAN = 1  # as torch numbers the reductions of its losses
_EXPONENT = "exponent"  # a number, where all else is a tensor


class _Node(NamedTuple):
    """A node of autograd's graph, with what it has saved of its inputs and results."""

    node: Any
    saved: dict[str, Tensor]

    @property
    def name(self) -> str:
        return self.node.name()

    @property
    def operation(self) -> str:
        """As torch calls it, such as 'mse_loss' for MseLossBackward0."""
        return operation_of(self.name)

    @property
    def taken(self) -> dict[str, Tensor]:
        return {name: tensor for name, tensor in self.saved.items() if name not in (*_RESULTS, _EXPONENT)}

    @property
    def result(self) -> Tensor | None:
        """The result itself, where it was saved or can be computed again."""
        if "result" in self.saved:
            return self.saved["result"]
        is_another = not self.saved.keys().isdisjoint(_RESULTS) or self.operation in ("mse_loss", *LABELLED)
        return None if is_another or (self.operation == "div" and "self" not in self.saved) else self.given

    @property
    def given(self) -> Tensor | None:
        """The result, or what is finite where that is, as far as it was saved or can be computed again."""
        if saved := [self.saved[name] for name in _RESULTS if name in self.saved]:
            return saved[0]
        if self.operation in LABELLED and getattr(self.node, "_saved_reduction", None) == MEAN:
            return (
                self.saved["self"].new_zeros(()) / self.saved["total_weight"]
            )  # finite, unless it is that of no label
        again = _AGAIN.get(self.operation)
        try:
            with torch.no_grad():
                return again(self.saved) if again else None
        except (KeyError, RuntimeError):
            return None


def passes_before(roots: Sequence[Tensor], mark: str) -> list[KeptPass]:
    """Return the passes of the model from which a loss was computed, the first one first."""
    return passes_of([root.grad_fn for root in roots], mark)


def passes_of(roots: Sequence[Any], mark: str) -> list[KeptPass]:
    """Return the same for nodes of autograd's graph."""
    return list(dict.fromkeys(node.metadata[mark] for node in _nodes(roots, mark) if mark in node.metadata))


def broken_losses(kept: KeptPass, mark: str) -> list[Tensor]:
    """Return the numbers that are not finite among those that are still there and were computed from a pass of the
    model, the first one first."""
    found: list[tuple[int, Tensor]] = []
    for tensor in gc.get_objects():
        if (
            issubclass(type(tensor), Tensor)
            and _is_computed_number(tensor)
            and _is_broken(tensor)
            and comes_from(tensor, kept, mark)
        ):
            found.append((len(_nodes([tensor.grad_fn], mark)), tensor))
    return [tensor for _, tensor in sorted(found, key=lambda each: each[0])]


def _is_computed_number(tensor: Tensor) -> bool:
    try:
        return tensor.grad_fn is not None and tensor.numel() == 1
    except RuntimeError:  # it is being let go of: only the object in Python is left
        return False


def _is_broken(tensor: Tensor) -> bool:
    try:
        return not values_of(tensor).finite
    except RuntimeError:  # it has no numbers, as those with which torch's compiler looks ahead
        return False


def comes_from(tensor: Tensor, kept: KeptPass, mark: str) -> bool:
    """Return whether a tensor was computed from a pass of the model."""
    return any(node.metadata.get(mark) is kept for node in _nodes([tensor.grad_fn], mark))


@dataclass
class _SavedInputs:
    """What autograd has saved for a node, while the births of several optimizers hold it."""

    saved: dict[str, Tensor]
    holders: int = 0


def hold(roots: Sequence[Tensor], mark: str) -> list[Any] | None:
    """Keep what autograd has saved of the loss code beyond the backward pass, until `let_go`. Return its nodes; None
    where it is long."""
    try:
        found = _nodes([root.grad_fn for root in roots], mark, MOST_HELD)
    except ProvenanceUnknown:
        return None
    nodes = [node for node in found if mark not in node.metadata and not _is_leaf(node)]
    for node in nodes:
        if (held := node.metadata.get(_SAVED)) is None:
            held = node.metadata[_SAVED] = _SavedInputs(_saved(node))
        held.holders += 1
    return nodes


def let_go(nodes: Sequence[Any]) -> None:
    for node in nodes:
        if (held := node.metadata.get(_SAVED)) is not None:
            held.holders -= 1
            if not held.holders:
                del node.metadata[_SAVED]


def begins_at() -> str:
    """Return the source of a backward pass that begins now."""
    frame = source_lines.calling_frame()
    return "" if frame is None else f"{BEGAN} {source_lines.Place(frame.f_code.co_filename, frame.f_lineno).text}"


def born_in(roots: Sequence[Tensor], mark: str, model: ModelLike) -> Provenance | None:
    """Return the operation of the loss code with the first result that is not finite. The outputs of the model are."""
    nodes = [
        _Node(node, _saved(node))
        for node in _nodes([root.grad_fn for root in roots], mark)
        if mark not in node.metadata and not _is_leaf(node)
    ]
    of_none = None  # where there is one; the script may have mended what it gives
    for each in nodes:
        taken = {name: values_of(tensor) for name, tensor in each.taken.items()}
        given = each.given
        if each.operation == "mean" and not getattr(each.node, "_saved_self_sym_numel", 1):
            of_none = _provenance("loss", [each], [], MEAN_OF_NONE, given, model)
        if all(values.finite for values in taken.values()):
            if given is not None and not values_of(given).finite:
                return _born_or_seen(each, list(taken.values()) or _inputs(each, mark), given, mark, model)
            continue
        if each.operation == "nan_to_num":
            continue
        if of_none is not None:
            return of_none
        broken = next(name for name, values in taken.items() if not values.finite)
        maker = _maker(each, broken)
        if maker is _UNTOLD:
            _look_at_weights(each.node, mark, model)
            cause = f"its {broken} holds {taken[broken].broken}; where that came from is not known"
            return _provenance("loss", [each], list(taken.values()), cause, given, model, is_birth=False)
        _look_at(maker, model)
        if maker is None or mark in maker.metadata or _is_leaf(maker):
            cause = f"its {_ROLES.get(broken, broken)} holds {taken[broken].broken}, which the model did not compute"
            return _provenance("loss", [each], list(taken.values()), cause, given, model)
        made = _Node(maker, _saved(maker))
        return _born_or_seen(made, _inputs(made, mark), each.saved[broken], mark, model)
    if of_none is not None and any(values_of(root).nan for root in roots):
        return of_none
    if not nodes:
        return None
    cause = "the outputs of the model are finite and the loss is not; autograd has saved too little to tell more"
    _look_at_weights(nodes[-1].node, mark, model)
    nodes = [each for each in nodes if not _is_whole_power(each.node)] or nodes  # it only overflows
    return _provenance("loss", nodes, [], cause, None, model, is_birth=all(map(_takes_known, nodes)))


def _born_or_seen(each: _Node, inputs: list[Values] | None, given: Tensor, mark: str, model: ModelLike) -> Provenance:
    """Return the operation that gave the first result which is not finite. It is the birth only where all `inputs` are
    known. ProvenanceUnknown where weights were not finite from which the result was computed."""
    values = values_of(given)
    if inputs is not None:
        broken = next((each for each in inputs if not each.finite), None)
        cause = f"its input holds {broken.broken}, which the model did not compute" if broken else _why(each, values)
        return _provenance("loss", [each], inputs, cause, given, model)
    _look_at_weights(each.node, mark, model)
    cause = f"its result holds {values.broken}; what went in is not known, as autograd has not saved it"
    return _provenance("loss", [each], [], cause, given, model, is_birth=False)


def _look_at_weights(node: Any, mark: str, model: ModelLike) -> None:
    """Raise ProvenanceUnknown where an operation comes after a weight that is not finite."""
    for leaf in filter(_is_leaf, _nodes([node], mark)):
        _look_at(leaf, model)


def _inputs(each: _Node, mark: str) -> list[Values] | None:
    """Return what went into an operation, but for what a model gave, which is finite; None where some of it is not
    known."""
    places = {_place(each, name): tensor for name, tensor in each.taken.items()}
    found: list[Values] = []
    for place, (node, _) in enumerate(each.node.next_functions):
        if node is not None and mark in node.metadata:
            continue
        tensor = places.get(place)
        if tensor is None and node is not None:
            tensor = node.variable.detach() if _is_leaf(node) else _Node(node, _saved(node)).result
        if tensor is None:
            return None
        found.append(values_of(tensor))
    return found


def _takes_known(each: _Node) -> bool:
    """Return whether all that an operation was given by no other operation is known to be finite."""
    places = {_place(each, name) for name in each.taken}
    return all(
        place in places if node is None else not _is_leaf(node) or values_of(node.variable.detach()).finite
        for place, (node, _) in enumerate(each.node.next_functions)
    )


def born_in_a_pass(roots: Sequence[Tensor], model: ModelLike) -> Provenance | None:
    """Return the operation with the first result that is NaN, in the whole graph behind a loss; None where autograd has
    saved too little. Inf is passed over: in the midst of a model it may be that of a mask."""
    for node in _nodes([root.grad_fn for root in roots], ""):
        each = _Node(node, _saved(node))
        given = None if _is_leaf(node) else each.given
        if given is None or not (values := values_of(given)).nan:
            continue
        went_in = list(each.taken.values()) or _given_before(each)
        taken = [values_of(tensor) for tensor in went_in]
        if taken and all(values.finite for values in taken):
            return _provenance("forward", [each], taken, _why(each, values), given, model)
    return None


def _given_before(each: _Node) -> list[Tensor]:
    """Return what the operations before one have given it; [] where one of them is not known, or it was given something
    without a gradient, of which the graph knows nothing."""
    found = []
    for node, _ in each.node.next_functions:
        before = None if node is None else node.variable if _is_leaf(node) else _Node(node, _saved(node)).result
        if before is None:
            return []
        found.append(before.detach())
    return found


def born_behind(roots: Sequence[Any], mark: str, model: ModelLike, micro_batch: int, micro_batches: int) -> Provenance:
    """Return the operations of the loss code in whose derivative a gradient may have become infinite or NaN, after a
    backward pass. ProvenanceUnknown where there is none."""
    nodes = [_Node(node, {}) for node in _nodes(roots, mark) if mark not in node.metadata and not _is_leaf(node)]
    if not nodes:
        raise ProvenanceUnknown("the gradient that came back to the model is not finite, and its graph is gone")
    for each in nodes:
        if each.operation == "exp" and (given := _part_of_output(each.node, mark)) is not None:
            values, result = values_of(given), given.exp()
            if values.finite and not values_of(result).finite:
                cause = f"exp({number(values.high)}) is beyond {largest_of(given.dtype)}, and so is its derivative"
                return _provenance("loss", [each], [values], cause, result, model, micro_batch, micro_batches)
    tame = _TAME | VIEWS
    steep = [each for each in nodes if each.operation not in tame and not _is_whole_power(each.node)]
    which = " or ".join(dict.fromkeys(each.operation for each in steep or nodes))
    cause = f"the gradient that the loss code gave the model is not finite: the derivative of {which} is not"
    if not steep:
        cause = (
            f"the gradient that the loss code gave the model is not finite, though {which} has a finite derivative of "
            f"finite values: it grew too large, or {CHANGED_BY_A_HOOK}"
        )
    return _provenance("backward", steep or nodes, [], cause, None, model, micro_batch, micro_batches)


def _part_of_output(node: Any, mark: str) -> Tensor | None:
    """Return the values that an operation was given, in any shape, where they are those of an output of a model or of a
    part of it, or their negatives: these are known after the backward pass too."""
    parts: list[tuple[Any, int]] = []
    sign = 1
    while len(node.next_functions) == 1:
        node, place = node.next_functions[0]
        if node is None:
            return None
        if mark in node.metadata:
            kept, output = node.metadata[mark], node.metadata.get((mark, place))
            given = None if output is None else kept.result(output)
            for part, which in reversed(parts):
                given = None if given is None else _PARTS[operation_of(part.name())](given, part, which)
            return None if given is None else given * sign
        operation = operation_of(node.name())
        if operation == "neg":
            sign = -sign
        elif operation in _PARTS:
            parts.append((node, place))
        elif parts or operation not in VIEWS or operation == "to_copy":  # what it has to do with the part is not known
            return None
    return None


def _sliced(node: Any) -> slice:
    return slice(_signed(node._saved_start), _signed(node._saved_end), node._saved_step)


def _signed(saved: Any) -> Any:
    """Return a number that autograd has saved: it takes a negative one for a large one."""
    return saved - (1 << 64) if saved is not None and saved >= 1 << 63 else saved


def _is_whole_power(node: Any) -> bool:
    """Return whether a node is a power of 1 or more, whose derivative is finite wherever the power is."""
    exponent = getattr(node, f"_saved_{_EXPONENT}", None) if operation_of(node.name()).startswith("pow") else None
    return isinstance(exponent, (int, float)) and exponent >= 1


def _nodes(roots: Sequence[Any], mark: str, most: int = MOST_NODES) -> list[Any]:
    """Return the graph behind the roots, inputs first, as far as the outputs of the model, which are in it too."""
    found: dict[Any, None] = {}
    waiting = [(node, False) for node in roots if node is not None]
    seen: set[Any] = set()
    while waiting:
        node, done = waiting.pop()
        if done:
            found[node] = None
        elif node not in seen:
            seen.add(node)
            waiting.append((node, True))
            if mark not in node.metadata:
                waiting += [(following, False) for following, _ in node.next_functions if following is not None]
        if len(seen) > most:
            raise ProvenanceUnknown(f"the loss code has more than {most:,} operations")
    return list(found)


def _saved(node: Any) -> dict[str, Tensor]:
    """Return the tensors that autograd has saved for a node; nothing after the backward pass has freed them."""
    found: dict[str, Tensor] = {}
    if (held := node.metadata.get(_SAVED)) is not None:
        return held.saved
    for name in dir(node):
        if name.startswith("_saved_"):
            try:
                value = getattr(node, name)
            except RuntimeError:  # freed, or changed in place since
                continue
            if name == f"_saved_{_EXPONENT}" and isinstance(value, (int, float)):
                value = torch.tensor(float(value))
            if isinstance(value, Tensor) and name == "_saved_other" and value.dtype in _COUNTS:
                value = value.to(torch.get_default_dtype())  # as for the number of those that are left in a mean
            if isinstance(value, Tensor) and value.is_floating_point():
                found[name.removeprefix("_saved_")] = value.detach()
    return found


_ROLES = {"target": "target", "other": "second operand", "self": "input", "weight": "weight"}


_PLACES = {"self": 0, "input": 0, "other": 1, "target": 1, "weight": 1}  # of what autograd has saved, among the inputs
_UNTOLD = object()  # in place of a node that gave an input


def _place(each: _Node, saved: str) -> int | None:
    """Return the place of what was saved among the inputs of an operation; None where that cannot be told."""
    if saved in ("mat1", "mat2"):  # of addmm, mm, bmm, which may have a sum before them
        return len(each.node.next_functions) - (1 if saved == "mat2" else 2)
    return _PLACES.get(saved)


def _maker(each: _Node, saved: str) -> Any:
    """Return the node that gave an input; None where that takes no gradient, _UNTOLD where it cannot be told."""
    following = [node for node, _ in each.node.next_functions]
    place = _place(each, saved)
    if place is None:
        return _UNTOLD
    return following[place] if place < len(following) else None  # of a target, there is no place


def _look_at(maker: Any, model: ModelLike) -> None:
    """Raise ProvenanceUnknown where a node gives a weight that is not finite, or another view of one."""
    while maker is not None and operation_of(maker.name()) in VIEWS and len(maker.next_functions) == 1:
        maker = maker.next_functions[0][0]
    found = getattr(maker, "variable", None) if maker is not None and _is_leaf(maker) else None
    if isinstance(found, nn.Parameter) and not (values := values_of(found.detach())).finite:
        raise ProvenanceUnknown(f"{_called(found, model)} held {values.broken}{BEFORE_THE_LOSS}")


def _called(weight: Tensor, model: ModelLike) -> str:
    own = next((name for name, each in model.named_parameters() if each.data_ptr() == weight.data_ptr()), "")
    return f"the weight {own}" if own else OF_ANOTHER if next(iter(model.named_parameters()), None) else "a weight"


def _is_leaf(node: Any) -> bool:
    return node.name().endswith("AccumulateGrad")


def _why(each: _Node, given: Values) -> str:
    operand = each.saved.get("self")
    if each.operation in _WHY and operand is not None:
        meets, why = _WHY[each.operation]
        count = int(meets(operand).sum())
        return f"{why}; {plural(count, 'value', 'values')} of {operand.numel():,} {'is' if count == 1 else 'are'} such"
    if each.operation in LABELLED:
        return "the mean over no label at all is 0 / 0: every label is the one that is left out, or has a weight of 0"
    if each.operation == "div" and (other := each.saved.get("other")) is not None and bool((other == 0).any()):
        return f"a division by 0: {plural(int((other == 0).sum()), 'zero', 'zeros')} of {other.numel():,}"
    taken = together([values_of(tensor) for tensor in each.taken.values()])
    if each.operation == "pow" and (exponent := each.saved.get(_EXPONENT)) is not None and operand is not None:
        if given.nan:
            return OF_NEGATIVE
        if given.inf and bool((exponent > 0).all()):
            return f"inputs up to {number(taken.largest)} gave {BEYOND} {largest_of(operand.dtype)}"
    into = f" of finite values up to {number(taken.largest)}" if taken.largest == taken.largest else ""
    return f"it made {given.broken}{into}"


def _provenance(
    phase: Phase, born: Sequence[_Node], taken: list[Values], cause: str, given: Tensor | None, model: ModelLike,
    micro_batch: int = 0, micro_batches: int = 1, *, is_birth: bool = True,
) -> Provenance:  # fmt: skip
    """Return what is known of an operation, or of those of which it may be one. `is_birth`: not only where it was first
    seen."""
    names = " or ".join(dict.fromkeys(each.name for each in born))
    went_in = together(taken)
    came_out = values_of(given) if given is not None else together([])
    dtype = str(given.dtype).removeprefix("torch.") if given is not None else ""
    return Provenance(
        step=0, phase=phase, module="", operation=names, cause=cause, micro_batch=micro_batch,
        micro_batches=micro_batches, time_step=None, layers=(),
        chain=(
            Operation(
                phase, "", names, "" if phase == "loss" else names, dtype, went_in.largest, went_in.nan, went_in.inf,
                came_out.largest, came_out.nan, came_out.inf, is_birth,
            ),
        ),
        source=(_source_in_model if phase == "forward" else _source)([each.operation for each in born], model),
        taken=taken_by(taken),
    )  # fmt: skip


def line_of(operations: Sequence[str], model: ModelLike) -> str:
    """Return the line of the script that calls one of the operations; "" where there is not exactly one."""
    found = _source(operations, model)
    return "" if found.startswith(BEGAN) else found


def _source_in_model(operations: Sequence[str], model: ModelLike) -> str:
    """Return the line of the model's code that calls one of the operations, "" where there is not exactly one."""
    classes = {type(module) for module in model.modules()}
    lines = {
        place
        for file in source_lines.files_of_classes(classes)
        for each in operations
        for place in source_lines.calls_of(each, file)
        if any(first <= place.line <= last for first, last in source_lines.lines_of_classes(classes, file))
    }
    return lines.pop().text if len(lines) == 1 else ""


def _source(operations: Sequence[str], model: ModelLike) -> str:
    """Return the line of the script that calls one of the operations, where there is only one; else the line that is at
    work, which is that of the backward pass. What stands behind that in the same function was not called yet."""
    frame = source_lines.calling_frame()
    file = frame.f_code.co_filename if frame is not None else getattr(sys.modules["__main__"], "__file__", None)
    if not file:
        return ""
    ranges = source_lines.lines_of_classes({type(module) for module in model.modules()}, file)
    lines = {place for each in operations for place in source_lines.calls_of(each, file, ranges)}
    if frame is not None:
        beside = {line for *_, line in frame.f_code.co_lines()}
        lines = {place for place in lines if place.line <= frame.f_lineno or place.line not in beside}
    if len(lines) == 1:
        return lines.pop().text
    return begins_at()

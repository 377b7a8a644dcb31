"""Every private or deprecated part of torch that the engine uses, and the plain path through public API beside it.

A part is tried once in a process, when it is first needed. Where it is missing or does something else than expected,
the functions below take the plain path: training goes on with the same numbers, and a notice says what is lost. No
other file of the engine may use a private name of torch."""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import ctypes
import inspect
import linecache
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import IntEnum
from functools import cache, lru_cache, partial, wraps
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gradstudio.engine import notices

# See one operation of torch: is given the operation, its arguments and its keyword arguments, and returns its results.
See = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]

OptimizerClass = Callable[..., torch.optim.Optimizer]  # called with the weights and the values of its knobs

_UNTRIED: Any = object()
_one_at_a_time = threading.RLock()  # runs train in one thread and fixes are tried in another; a probe may need another


class Internal:
    """A part of torch that may vanish: its name, what is lost without it, and the function that finds it."""

    def __init__(self, name: str, lost: str, price: str, find: Callable[[], Any]) -> None:
        """`find` returns what the part is used for, and raises where it is missing or does something unexpected."""
        self.name, self.lost, self.price = name, lost, price
        self._find, self._found, self._problem = find, _UNTRIED, ""

    def get(self) -> Any:
        """Return the part, or None where it is missing. The first call tries it."""
        if self._found is _UNTRIED:
            with _one_at_a_time:
                if self._found is _UNTRIED:
                    self._try()
        return self._found

    def problem(self) -> str:
        """Return what is lost, in one sentence; empty where nothing is."""
        self.get()
        return self._problem

    def forget(self) -> None:
        """Try it again at the next use."""
        self._found, self._problem = _UNTRIED, ""

    def _try(self) -> None:
        try:
            found, why = self._find(), ""
        except (AttributeError, ImportError):
            found, why = None, "is not there"
        except Exception:  # a private name may do anything
            found, why = None, "does not do what it did"
        if found is None:
            self._problem = f"{self.lost}: {self.name} {why or 'does not do what it did'}; {self.price}."
            notices.tell(self._problem)
        self._found = found


def _check(holds: bool) -> None:
    if not holds:
        raise RuntimeError("not what it was")


# ---- hearing what a script of somebody else does

_CLIPPING_HELPER = "_group_tensors_by_device_and_dtype"
_BY_NORM = "_clip_grads_with_norm_"
_LIMITS = {_BY_NORM: "max_norm", "clip_grad_value_": "clip_value"}
_KINDS = {_BY_NORM: "norm", "clip_grad_value_": "value"}


def hear_clipping(
    hear: Callable[[str, float, Sequence[Tensor], Sequence[Tensor]], None], afterwards: Callable[[], None]
) -> Callable[[], None] | None:
    """Call `hear` with kind, limit, gradients and, where there are none, parameters before torch clips gradients, and
    `afterwards` once it has clipped them by their norm, until the function that is returned is called. None where that
    is impossible."""
    module = CLIPPING.get()
    if module is None:
        return None
    original, by_norm = getattr(module, _CLIPPING_HELPER), getattr(module, _BY_NORM)

    def group(tensors: Any, *others: Any, **named: Any) -> Any:
        frame = sys._getframe(1)
        caller = frame.f_code.co_name
        if caller in _KINDS:
            hear(_KINDS[caller], float(frame.f_locals[_LIMITS[caller]]), tensors[0], ())
        return original(tensors, *others, **named)

    @wraps(by_norm)
    def clip(parameters: Any, max_norm: Any, *others: Any, **named: Any) -> Any:
        if isinstance(parameters, list) and parameters and all(tensor.grad is None for tensor in parameters):
            hear("norm", float(max_norm), (), parameters)  # it does not come as far as the helper
        given = by_norm(parameters, max_norm, *others, **named)
        afterwards()
        return given

    ours = {_CLIPPING_HELPER: (group, original), _BY_NORM: (clip, by_norm)}

    def undo() -> None:
        for name, (own, before) in ours.items():
            if getattr(module, name) is own:
                setattr(module, name, before)

    for name, (own, _) in ours.items():
        setattr(module, name, own)
    return undo


def scripts_modules() -> Any:
    """Return the module of torch whose `create_script_module` makes a script of a model; None where it has none."""
    owner = getattr(torch.jit, "_recursive", None)
    return owner if hasattr(owner, "create_script_module") else None


def without_hooks(trace: TracebackType, following: TracebackType, is_ours: Callable[[Any], bool]) -> Any:
    """Return the instruction and the line at which `trace` would stand if the model that it calls had no hooks of ours;
    None where it is no such call. `following` is the entry after it, which would not be there."""
    called, inner = trace.tb_frame.f_code, following.tb_frame.f_code
    if called is not getattr(nn.Module._call_impl, "__code__", None) or inner not in called.co_consts:
        return None
    module: Any = trace.tb_frame.f_locals.get("self")
    ours, others = _hooks_of(module)
    if others or not all(map(is_ours, ours)):
        return None
    text = partial(linecache.getline, called.co_filename)
    plain = [
        (2 * number, line)
        for number, (line, _, start, end) in enumerate(called.co_positions())
        if line is not None and text(line)[start:end] == "forward_call(*args, **kwargs)"
    ]
    return plain[-1] if plain else None


def _hooks_of(module: Any) -> tuple[list[Any], list[Any]]:
    """Return the hooks around a model's forward pass that may be ours, and all the others."""
    kinds = ("forward_hooks", "forward_pre_hooks", "backward_hooks", "backward_pre_hooks")
    forward = [hook for kind in kinds[:2] for hook in getattr(module, f"_{kind}", {}).values()]
    others = [hook for kind in kinds[2:] for hook in getattr(module, f"_{kind}", {}).values()]
    everywhere = [getattr(nn.modules.module, f"_global_{kind}", {}) for kind in kinds]
    return forward, [*others, *(hook for hooks in everywhere for hook in hooks.values())]


def registered(module: nn.Module) -> list[dict[str, Any]]:
    """Return the tables in which a module keeps its own parameters and its modules by their names; none in a version
    of torch that keeps them elsewhere."""
    return [table for table in map(vars(module).get, ("_parameters", "_modules")) if isinstance(table, dict)]


def hooks_of(module: nn.Module) -> list[Callable[..., Any]]:
    """Return the hooks that a forward pass of a module or its backward pass calls; none where torch keeps them
    elsewhere."""
    ours, others = _hooks_of(module)
    return [*ours, *others]


def buffers(module: nn.Module) -> dict[str, Tensor | None]:
    """Return a module's own buffers by their names, None where one has no tensor yet; none in a version of torch that
    keeps them elsewhere."""
    return vars(module).get("_buffers") or {}


def version_of(tensor: Tensor) -> int:
    """Return a number that changes whenever torch writes to a tensor."""
    return tensor._version


def autocast_format(autocast: Any) -> torch.dtype | None:
    """Return the number format of an autocast block; None where it is switched off."""
    return getattr(autocast, "fast_dtype", None) if getattr(autocast, "_enabled", False) else None


# ---- seeing every operation


def _find_skip_compiler() -> bool:
    from torch.utils._python_dispatch import TorchDispatchMode

    _check(TorchDispatchMode._should_skip_dynamo() is True)
    return True


def _find_dispatch_mode() -> Callable[[See], AbstractContextManager[Any]]:
    from torch.utils._python_dispatch import TorchDispatchMode

    SKIP_COMPILER.get()

    class Seeing(TorchDispatchMode):
        # torch would keep its compiler away from the method below, and import it for that, which takes a second.
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False

        def __init__(self, see: See) -> None:
            super().__init__()
            self._see = see

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return self._see(function, args, kwargs or {})

    seen: list[str] = []

    def see(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        seen.append(str(function))
        return function(*args, **kwargs)

    weight = torch.ones(2, requires_grad=True)
    with Seeing(see):
        (gradient,) = torch.autograd.grad((weight * 3).sum(), weight)
    _check(gradient.tolist() == [3, 3] and seen[:2] == ["aten.mul.Tensor", "aten.sum.default"] and len(seen) > 3)
    return Seeing


def _find_schema() -> Callable[[Any], Any]:
    aten: Any = torch.ops.aten
    plain, in_place, writing = aten.add.Tensor._schema, aten.add_.Tensor._schema, aten.add.out._schema
    _check(plain.name == "aten::add" and not plain.is_mutable and in_place.is_mutable)
    _check([str(each.type) for each in plain.returns] == ["Tensor"])
    _check([argument.name for argument in plain.arguments] == ["self", "other", "alpha"])
    _check(plain.arguments[2].default_value == 1 and plain.arguments[0].alias_info is None)
    _check(in_place.arguments[0].alias_info.is_write)
    _check([argument.is_out for argument in writing.arguments] == [False, False, False, True])
    return lambda function: function._schema


def _find_direct_call() -> Callable[[Any], Callable[..., Any]]:
    _check(torch.ops.aten.mul.Tensor._op(torch.ones(1), torch.full((1,), 3.0)).tolist() == [3])
    return lambda function: function._op


def seeing_possible() -> bool:
    """Return whether operations can be seen at all, and what they do to their arguments be told."""
    return SEEING.get() is not None and SCHEMA.get() is not None


def seeing(see: See) -> AbstractContextManager[Any]:
    """Return a context in which `see` is called in place of every operation of this thread. Only where
    seeing_possible."""
    return SEEING.get()(see)


def schema(function: Any) -> Any:
    """Return the declaration of an operation: its name, arguments and results. Only where seeing_possible."""
    return SCHEMA.get()(function)


def direct(function: Any) -> Callable[..., Any]:
    """Return what an operation calls, without the Python code around it."""
    find = DIRECT_CALL.get()
    return find(function) if find else function


# ---- tensors without memory, and what operations multiply


def _find_without_memory() -> Callable[[], AbstractContextManager[Any]]:
    from torch._subclasses.fake_tensor import FakeTensorMode

    _check("allow_non_fake_inputs" in inspect.signature(FakeTensorMode).parameters)
    return lambda: FakeTensorMode(allow_non_fake_inputs=True)


def without_memory() -> Callable[[], AbstractContextManager[Any]] | None:
    """Return what makes a context in which tensors have a shape and no memory; None where torch has none. To make the
    first one imports torch's compiler, for a second."""
    return WITHOUT_MEMORY.get()


_Count = Callable[[Any, tuple[Any, ...], dict[str, Any], Any], int]


def _find_count() -> _Count:
    from torch.utils.flop_counter import flop_registry

    def count(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], results: Any) -> int:
        formula = flop_registry.get(function.overloadpacket)
        return 0 if formula is None else int(formula(*args, **kwargs, out_val=results)) // 2

    aten: Any = torch.ops.aten
    with torch.no_grad():
        product = torch.ones(2, 3), torch.ones(3, 5)
        _check(count(aten.mm.default, product, {}, torch.ones(2, 5)) == 30)
    return count


def count_multiplications() -> _Count:
    """Return a function that gives the multiplications of an operation, its arguments and results: those of matrix
    products and convolutions, 0 for others, and where torch does not tell."""
    return MULTIPLICATIONS.get() or (lambda function, args, kwargs, results: 0)


def _find_onednn() -> Callable[[torch.dtype], bool]:
    asked = {
        torch.bfloat16: torch.ops.mkldnn._is_mkldnn_bf16_supported,
        torch.float16: torch.ops.mkldnn._is_mkldnn_fp16_supported,
    }
    answers = {dtype: bool(ask()) for dtype, ask in asked.items()}
    return lambda dtype: answers.get(dtype, True)


def convolved_by_onednn(dtype: torch.dtype) -> bool:
    """Return whether oneDNN makes convolutions in this number format on this processor. True where nobody tells."""
    knows = ONEDNN.get()
    return torch.backends.mkldnn.is_available() and (knows is None or knows(dtype))


def is_view(tensor: Tensor) -> bool:
    """Return whether a tensor is a view, which keeps its base."""
    return tensor._base is not None


def channels_of_a_block() -> int:
    """Return how many channels oneDNN keeps together in a convolution: the floats of a register of this processor."""
    return 16 if "AVX512" in torch.backends.cpu.get_cpu_capability() else 8


# ---- a list of operations as a program of torch's own

_TRIAL = "def program(tensors: List[Tensor]) -> None:\n    t0, t1, = tensors\n    torch.ops.aten.add_(t0, t1)\n"


def _runs(listed: Callable[[list[Tensor]], Any], script: Any) -> bool:
    place = torch.ones(2)
    with torch.jit.optimized_execution(False):
        script.program(listed([place, torch.full((2,), 4.0)]))
    return place.tolist() == [5, 5]


def _find_script() -> Callable[[str], Any]:
    _check(_runs(list, torch.jit.CompilationUnit(_TRIAL)))
    return torch.jit.CompilationUnit


def _find_script_list() -> Callable[[list[Tensor]], Any]:
    _check(_runs(torch._C.ScriptList, torch.jit.CompilationUnit(_TRIAL)))
    return torch._C.ScriptList


def _find_unoptimized() -> Callable[[], AbstractContextManager[None]]:
    before = torch.jit.optimized_execution
    with before(False):
        pass
    return lambda: before(False)


def scripting_possible() -> bool:
    """Return whether torch can run a program without Python, and without optimizing it, which could change bits."""
    return UNOPTIMIZED.get() is not None and SCRIPT.get() is not None


@lru_cache(maxsize=32)  # compiling takes as long as some passes, and a branch or a twin asks for the same text again
def script(text: str) -> Any:
    """Compile TorchScript. Only where scripting_possible; RuntimeError where torch does not take the text."""
    # torch holds on to all that the calling function knows, so this one knows nothing else.
    return SCRIPT.get()(text)


def script_list(tensors: list[Tensor]) -> Any:
    """Return the tensors as an argument of a script, in a list that torch holds without Python where it can."""
    make = SCRIPT_LIST.get()
    return make(tensors) if make else tensors


def unoptimized() -> AbstractContextManager[None]:
    """Return a context in which this thread runs scripts as they are written."""
    make = UNOPTIMIZED.get()
    return make() if make else nullcontext()


# ---- operations on whole lists of tensors: one call for many, with the bits of the operation on each


def _find_foreach_norm() -> Callable[[list[Tensor], float], Sequence[Tensor]]:
    _check([norm.item() for norm in torch._foreach_norm([torch.full((4,), 3.0), torch.ones(1)], 2)] == [6, 1])
    return torch._foreach_norm


def _find_foreach_mul() -> Callable[[list[Tensor], list[Tensor]], object]:
    places = [torch.ones(2), torch.ones(1)]
    torch._foreach_mul_(places, [torch.tensor(3.0), torch.tensor(5.0)])
    _check([place.tolist() for place in places] == [[3, 3], [5]])
    return torch._foreach_mul_


def _find_foreach_copy() -> Callable[[list[Tensor], list[Tensor]], object]:
    places = [torch.zeros(2), torch.zeros(1)]
    torch._foreach_copy_(places, [torch.ones(2), torch.full((1,), 2.0)])
    _check([place.tolist() for place in places] == [[1, 1], [2]])
    return torch._foreach_copy_


def norms(tensors: Sequence[Tensor]) -> Tensor:
    """Return the L2 norm of each tensor: (tensors,), on their device."""
    norm = FOREACH_NORM.get()
    each = norm(list(tensors), 2) if norm else [torch.linalg.vector_norm(tensor) for tensor in tensors]
    return torch.stack(list(each))


def multiply_(tensors: Sequence[Tensor], factors: Sequence[Tensor]) -> None:
    """Multiply each tensor with its factor, in place."""
    if multiply := FOREACH_MUL.get():
        multiply(list(tensors), list(factors))
        return
    for tensor, factor in zip(tensors, factors, strict=True):
        tensor.mul_(factor)


def copy_(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copy each source to its target."""
    if targets and (copy := FOREACH_COPY.get()):
        copy(list(targets), list(sources))
        return
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source)


# ---- optimizers and the loss scaler


def _check_without_compiler(call: Callable[[], object]) -> None:
    before = "torch._dynamo" in sys.modules
    call()
    _check(before or "torch._dynamo" not in sys.modules)


def _strip_groups(kind: type[torch.optim.Optimizer]) -> OptimizerClass:
    return type(kind.__name__, (kind,), {"add_param_group": inspect.unwrap(kind.add_param_group)})


def _find_plain_groups() -> Callable[[type[torch.optim.Optimizer]], OptimizerClass]:
    weight, kind = nn.Parameter(torch.ones(1)), _strip_groups(torch.optim.SGD)
    _check_without_compiler(lambda: _check(kind([weight]).param_groups[0]["params"][0] is weight))
    return _strip_groups


def _find_plain_step() -> Callable[[torch.optim.Optimizer], Callable[..., object]]:
    weight = nn.Parameter(torch.ones(1), requires_grad=False)
    weight.grad = torch.ones(1)
    optimizer = without_compiler(torch.optim.SGD)([weight], lr=0.5, foreach=False)
    step = inspect.unwrap(type(optimizer).step)
    _check_without_compiler(lambda: step(optimizer))
    _check(weight.tolist() == [0.5])
    called: list[int] = []

    def count(closure: Any = None) -> Any:
        called.append(1)

    optimizer.step = count
    scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
    scaler.scale(weight.sum())
    scaler.step(optimizer)
    _check(called == [1])  # a GradScaler calls the method that was put in place of torch's
    return lambda of: inspect.unwrap(type(of).step)


@cache
def without_compiler(kind: type[torch.optim.Optimizer]) -> OptimizerClass:
    """Return the same kind of optimizer. torch wraps a method of it so that its compiler leaves that alone, and the
    first call imports the compiler for it."""
    strip = PLAIN_GROUPS.get()
    return strip(kind) if strip else kind


def plain_step(optimizer: torch.optim.Optimizer) -> Callable[..., object] | None:
    """Return the function that makes an update, to be called with the optimizer; None where only optimizer.step() can.

    torch wraps it for its profiler and for differentiable optimizers, which takes as long as an update of a small
    model. Where it is returned, a GradScaler also calls a method that is put in place of optimizer.step."""
    strip = PLAIN_STEP.get()
    return strip(optimizer) if strip else None


def _find_scaler_states() -> Callable[[torch.amp.GradScaler], bool]:
    weight = torch.ones(1, requires_grad=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    scaler.scale(weight.sum()).backward()
    _check(not scaler._per_optimizer_states)
    scaler.unscale_(SimpleNamespace(param_groups=[{"params": [weight]}]))  # pyright: ignore[reportArgumentType]
    _check(bool(scaler._per_optimizer_states))
    return lambda of: bool(of._per_optimizer_states)


def scaler_in_mid_step(scaler: torch.amp.GradScaler) -> bool:
    """Return whether a step broke off between its unscale and its update. True where that cannot be told."""
    look = SCALER_STATES.get()
    return look(scaler) if look else True


# ---- autograd, sums of segments, fresh memory


def _find_node_at_work() -> Callable[[], Any]:
    seen: list[tuple[str, str]] = []

    def note(gradient: Tensor) -> None:
        node: Any = torch._C._current_autograd_node()
        seen.append((node.name(), node.metadata.get("module", "")))

    weight = torch.ones(1, requires_grad=True)
    product = weight * 2
    made: Any = product.grad_fn
    made.metadata["module"] = "trial"
    weight.register_hook(note)
    product.register_hook(note)
    product.sum().backward()
    _check(torch._C._current_autograd_node() is None and ("MulBackward0", "trial") in seen)
    return torch._C._current_autograd_node


def node_at_work() -> Callable[[], Any]:
    """Return a function that gives the node of autograd's graph which is at work in this thread, None without any."""
    return NODE_AT_WORK.get() or (lambda: None)


def _find_hook_dict() -> Callable[[Tensor, Callable[[Tensor], None]], None]:
    def hear(tensor: Tensor, hook: Callable[[Tensor], None]) -> None:
        if tensor._backward_hooks is not None or tensor.grad_fn is None:  # the script has hooks of its own
            tensor.register_hook(hook)
            return
        hooks: Any = OrderedDict({hook: hook})  # those of torch have numbers for keys
        tensor._backward_hooks = hooks
        node: Any = tensor.grad_fn
        node._register_hook_dict(tensor)

    seen: list[float] = []
    weight = torch.ones(1, requires_grad=True)
    product = weight * 2
    hear(product, lambda gradient: seen.append(gradient.item()))
    handle = product.register_hook(lambda gradient: gradient * 5)
    removed = product.register_hook(lambda gradient: seen.append(0.0))
    removed.remove()
    (product * 3).backward()
    handle.remove()
    _check(seen == [3] and weight.grad is not None and weight.grad.item() == 30)
    return hear


def hear_gradient(tensor: Tensor, hook: Callable[[Tensor], None]) -> None:
    """Call `hook` with each gradient that comes back to a tensor, before the hooks that are put on it later."""
    if (hear := HOOK_DICT.get()) is not None and type(tensor) is Tensor:
        hear(tensor, hook)
    else:
        tensor.register_hook(hook)


def _find_float_type() -> Callable[[Any], bool]:
    is_one = torch.FloatTensor.__instancecheck__
    plain = torch.ones(2, dtype=torch.float32, device="cpu")
    others = [plain.half(), plain.to_sparse(), torch._neg_view(plain)]
    _check(is_one(plain) and is_one(nn.Parameter(plain)) and not any(map(is_one, others)))
    return is_one


def are_plain_floats(tensors: Sequence[Tensor]) -> bool:
    """Return whether tensors are float32, on the host, strided, and not to be negated as they are read."""
    if (is_one := FLOAT_TYPE.get()) is not None:  # asked one by one it takes six times as long
        return all(map(is_one, tensors))
    return all(
        tensor.dtype == torch.float32 and tensor.is_cpu and tensor.layout is torch.strided and not tensor.is_neg()
        for tensor in tensors
    )


# ---- asking torch from compiled loops


class EntryPoint(IntEnum):
    """Places in the array of what compiled loops need to know to ask torch (gauges/addresses.py). The first ones are
    addresses of functions. A handle is where the pointer to a tensor stands."""

    GRADIENT = 0  # of the tensor a pointer leads to: the handle of its gradient
    TRAINED = 1  # of the same: whether it requires a gradient
    LAYOUT = 2  # of a handle, as all that follow: writes the answer at an address, and returns 0
    DTYPE = 3
    DEVICE = 4
    CONTIGUOUS = 5
    LENGTH = 6
    DATA = 7
    OFFSET = 8  # bytes from the beginning of a Python object to its handle
    NO_GRADIENT = 9  # the pointer that stands for none
    STRIDED = 10  # what LAYOUT, DTYPE and DEVICE write for a tensor that the loops can read
    FLOAT32 = 11
    HOST = 12


# The functions, each with its library. All but two are of torch's C interface, which is meant to stay; GRADIENT and
# TRAINED are methods in C++, with their names as every compiler but Microsoft's writes them.
_EXPORTED = {
    EntryPoint.GRADIENT: ("c10", "_ZNK3c1010TensorImpl4gradEv"),
    EntryPoint.TRAINED: ("c10", "_ZNK3c1010TensorImpl13requires_gradEv"),
    EntryPoint.LAYOUT: ("torch_cpu", "aoti_torch_get_layout"),
    EntryPoint.DTYPE: ("torch_cpu", "aoti_torch_get_dtype"),
    EntryPoint.DEVICE: ("torch_cpu", "aoti_torch_get_device_type"),
    EntryPoint.CONTIGUOUS: ("torch_cpu", "aoti_torch_is_contiguous"),
    EntryPoint.LENGTH: ("torch_cpu", "aoti_torch_get_numel"),
    EntryPoint.DATA: ("torch_cpu", "aoti_torch_get_data_ptr"),
}


def _exported(library: str, name: str) -> int:
    """Return the address of a function of one of torch's libraries."""
    folder = Path(torch.__file__).parent / "lib"
    file = next((found for end in ("so", "dylib") if (found := folder / f"lib{library}.{end}").exists()), None)
    if file is None:
        raise AttributeError(name)
    return ctypes.cast(getattr(ctypes.CDLL(str(file)), name), ctypes.c_void_p).value or 0


def _answer(entry: np.ndarray, point: EntryPoint, handle: int) -> int:
    """Return what a function of the C interface writes for a handle."""
    answer = ctypes.c_int64(0)
    ask = ctypes.PYFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p)(int(entry[point]))
    _check(ask(handle, ctypes.addressof(answer)) == 0)
    return answer.value


def _find_entry_points() -> np.ndarray:
    """Memory is read within the object of a tensor, and where a function of torch says."""
    entry = np.zeros(len(EntryPoint), np.int64)
    for point, (library, name) in _EXPORTED.items():
        entry[point] = _exported(library, name)
    kind: Any = {"dtype": torch.float32, "device": "cpu"}  # a script may have chosen others for all new tensors
    plain, trained = torch.ones(2, 3, **kind), nn.Parameter(torch.ones(3, **kind))
    within = range(object.__basicsize__, torch._C.TensorBase.__basicsize__, 8)
    word_at = ctypes.c_int64.from_address
    entry[EntryPoint.OFFSET] = offset = next(at for at in within if word_at(id(plain) + at).value == plain._cdata)
    pointer_to = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
    gradient_of = pointer_to(int(entry[EntryPoint.GRADIENT]))
    entry[EntryPoint.NO_GRADIENT] = nothing = word_at(gradient_of(trained._cdata)).value
    trained.grad = torch.ones(3, **kind)
    _check(word_at(gradient_of(plain._cdata)).value == nothing != trained.grad._cdata)
    _check(word_at(gradient_of(trained._cdata)).value == trained.grad._cdata)
    is_trained = ctypes.PYFUNCTYPE(ctypes.c_bool, ctypes.c_int64)(int(entry[EntryPoint.TRAINED]))
    _check(is_trained(trained._cdata) and not is_trained(plain._cdata))
    handle = id(plain) + offset
    for point, answer, other in (
        (EntryPoint.LAYOUT, EntryPoint.STRIDED, plain.to_sparse()),
        (EntryPoint.DTYPE, EntryPoint.FLOAT32, plain.half()),
        (EntryPoint.DEVICE, EntryPoint.HOST, plain.to("meta")),
    ):
        entry[answer] = _answer(entry, point, handle)
        _check(_answer(entry, point, id(other) + offset) != entry[answer])
    _check(_answer(entry, EntryPoint.CONTIGUOUS, handle) == 1 and _answer(entry, EntryPoint.LENGTH, handle) == 6)
    turned = plain.t()
    _check(_answer(entry, EntryPoint.CONTIGUOUS, id(turned) + offset) == 0)
    _check(_answer(entry, EntryPoint.DATA, handle) == plain.data_ptr())
    return entry


def entry_points() -> np.ndarray | None:
    """Return what `Addresses` needs to know of torch, in the order of EntryPoint; None where it cannot be asked."""
    return ENTRY_POINTS.get()


def _find_segment_reduce() -> Callable[..., Tensor]:
    def reduce(data: Tensor, how: str, offsets: Tensor) -> Tensor:
        return torch.segment_reduce(data, how, offsets=offsets, unsafe=True)

    data, offsets = torch.tensor([1.0, -4, 2, 8], dtype=torch.float64), torch.tensor([0, 3, 4])
    _check(reduce(data, "sum", offsets).tolist() == [-1, 8] and reduce(data, "max", offsets).tolist() == [2, 8])
    return reduce


def segment_sums_possible() -> bool:
    """Return whether segment_reduce can be called."""
    return SEGMENT_REDUCE.get() is not None


def segment_reduce(data: Tensor, how: str, offsets: Tensor) -> Tensor:
    """Sum (or take the largest of) the entries between each offset and the next, without the host waiting for the
    device. Only where segment_sums_possible."""
    return SEGMENT_REDUCE.get()(data, how, offsets)


def _find_clipping() -> Any:
    """Both functions that clip call this helper by its global name, however the script imported them."""
    from torch.nn.utils import clip_grad

    for function in (clip_grad._clip_grads_with_norm_, clip_grad.clip_grad_value_):
        code: Any = inspect.unwrap(function).__code__
        _check(_CLIPPING_HELPER in code.co_names and _LIMITS[code.co_name] in code.co_varnames)
    _check(callable(getattr(clip_grad, _CLIPPING_HELPER)))
    return clip_grad


def _find_fill() -> Callable[[bool], None]:
    _check(isinstance(torch.utils.deterministic.fill_uninitialized_memory, bool))  # pyright: ignore[reportAttributeAccessIssue]

    def fill(wanted: bool) -> None:
        torch.utils.deterministic.fill_uninitialized_memory = wanted  # pyright: ignore[reportAttributeAccessIssue]

    return fill


def leave_fresh_memory_alone() -> None:
    """Keep torch from filling every fresh tensor with NaN, which costs time and finds only faults in torch itself."""
    if fill := FILL.get():
        fill(False)


# ---- the table

_SLOWER = "training is slower, with the same numbers"
_SLOW_START = "a run starts a second later, with the same numbers"

SKIP_COMPILER = Internal(
    "TorchDispatchMode._should_skip_dynamo", "torch's compiler may be loaded", _SLOW_START, _find_skip_compiler
)
SEEING = Internal(
    "torch.utils._python_dispatch", "Recorded passes and NaN provenance are off", _SLOWER, _find_dispatch_mode
)
SCHEMA = Internal("OpOverload._schema", "Recorded passes and NaN provenance are off", _SLOWER, _find_schema)
WITHOUT_MEMORY = Internal(
    "torch._subclasses.fake_tensor", "The memory of an experiment cannot be worked out before it is run",
    "training is as it was", _find_without_memory,
)  # fmt: skip
MULTIPLICATIONS = Internal(
    "torch.utils.flop_counter.flop_registry", "The work of an experiment is not known before it is run",
    "its memory is known all the same", _find_count,
)  # fmt: skip
ONEDNN = Internal(
    "torch.ops.mkldnn._is_mkldnn_bf16_supported", "The memory of convolutions in bf16 and fp16 is estimated less well",
    "training is as it was", _find_onednn,
)  # fmt: skip
DIRECT_CALL = Internal("OpOverload._op", "Recorded passes call torch the long way", _SLOWER, _find_direct_call)
SCRIPT = Internal("torch.jit.CompilationUnit", "Recorded passes go through Python", _SLOWER, _find_script)
UNOPTIMIZED = Internal("torch.jit.optimized_execution", "Recorded passes go through Python", _SLOWER, _find_unoptimized)
SCRIPT_LIST = Internal(
    "torch._C.ScriptList", "Recorded passes hold Python's lock", "the window may react later", _find_script_list
)
FOREACH_NORM = Internal("torch._foreach_norm", "Clipping takes tensor by tensor", _SLOWER, _find_foreach_norm)
FOREACH_MUL = Internal("torch._foreach_mul_", "Clipping takes tensor by tensor", _SLOWER, _find_foreach_mul)
FOREACH_COPY = Internal("torch._foreach_copy_", "Gradients are copied tensor by tensor", _SLOWER, _find_foreach_copy)
PLAIN_GROUPS = Internal(
    "Optimizer.add_param_group.__wrapped__", "torch's compiler is loaded", _SLOW_START, _find_plain_groups
)
PLAIN_STEP = Internal("Optimizer.step.__wrapped__", "Updates go through torch's wrappers", _SLOWER, _find_plain_step)
SCALER_STATES = Internal(
    "GradScaler._per_optimizer_states", "A rewind in fp16 records its passes again", _SLOWER, _find_scaler_states
)
NODE_AT_WORK = Internal(
    "torch._C._current_autograd_node",
    "NaN provenance does not name the module in the backward pass",
    "training is as it was",
    _find_node_at_work,
)
HOOK_DICT = Internal(
    "torch.Tensor._backward_hooks",
    "A watched step takes longer",
    "the figures are the same",
    _find_hook_dict,
)
FLOAT_TYPE = Internal("torch.FloatTensor", "A watched step takes longer", "the figures are the same", _find_float_type)
ENTRY_POINTS = Internal(
    "libtorch's aoti_torch_get_data_ptr", "A watched step takes longer", "the figures are the same", _find_entry_points
)
CLIPPING = Internal(
    "torch.nn.utils.clip_grad", "Kind and limit of clipping in a watched script are not known",
    "the norms after clipping are measured all the same", _find_clipping,
)  # fmt: skip
SEGMENT_REDUCE = Internal(
    "torch.segment_reduce", "A GPU waits for the CPU at every step", "training on a GPU is slower", _find_segment_reduce
)
FILL = Internal(
    "torch.utils.deterministic.fill_uninitialized_memory", "torch may fill fresh memory", _SLOWER, _find_fill
)

INTERNALS = (
    SKIP_COMPILER, SEEING, SCHEMA, WITHOUT_MEMORY, MULTIPLICATIONS, ONEDNN, DIRECT_CALL, SCRIPT, UNOPTIMIZED,
    SCRIPT_LIST, FOREACH_NORM, FOREACH_MUL, FOREACH_COPY, PLAIN_GROUPS, PLAIN_STEP, SCALER_STATES, NODE_AT_WORK,
    HOOK_DICT, FLOAT_TYPE, ENTRY_POINTS, CLIPPING, SEGMENT_REDUCE, FILL,
)  # fmt: skip


def try_parts_of_a_watch() -> None:
    """Try what a watch asks of torch at every step. Two of the trials make a backward pass, which a watch that listens
    already would take for one of the script's."""
    with torch.enable_grad():
        for part in (NODE_AT_WORK, HOOK_DICT, FLOAT_TYPE, ENTRY_POINTS):
            part.get()


def problems() -> list[str]:
    """Try every part, and return what is lost, a sentence each."""
    return [problem for each in INTERNALS if (problem := each.problem())]


def forget() -> None:
    """Try every part again at its next use."""
    without_compiler.cache_clear()
    script.cache_clear()
    for each in INTERNALS:
        each.forget()

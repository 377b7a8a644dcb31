"""What a forward pass of somebody's model may count or remember by itself: attributes of its modules, and the variables
of its hooks and of its own functions, wherever these are kept. Numbers and texts, and small containers of them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from torch import Tensor, nn

from gradstudio.engine.torch_internals import autograd_nodes, module_tables
from gradstudio.watching.source_lines import is_own

MOST_ITEMS = 32  # of a container that is kept; a longer one is a record of the training
MOST_SEEN = 500  # objects and functions that are looked at
_PLAIN = (int, float, bool, str, type(None))
_NOT_OWN = ("torch.", "gradstudio.", "builtins")  # modules whose objects count nothing that a pass depends on
_MISSING = object()
_NOT_KEPT = object()


@dataclass(frozen=True)
class Variable:
    """A name in one of three places: an attribute of an object, an entry of a table, a cell of a closure. Two are equal
    where they are the same place."""

    kind: str
    of: int  # id of what has it
    name: str
    owner: Any = field(compare=False)  # a weak reference to an object; the table or the cell itself

    @property
    def value(self) -> Any:
        """What it is now; a container and a tensor as a copy."""
        return _copied(self.held)

    @property
    def held(self) -> Any:
        """What it is now; a container and a tensor as that itself."""
        match self.kind:
            case "attribute":
                return getattr(self.owner(), self.name, _MISSING)
            case "entry":
                return self.owner.get(self.name, _MISSING)
        try:
            return self.owner.cell_contents
        except ValueError:  # not set yet
            return _MISSING

    def hold(self, value: Any) -> None:
        """Make it the very thing that it was."""
        now = self.held
        if now is not value and not (self.kind == "attribute" and self.owner() is None):
            self._delete() if value is _MISSING else self._set(value)

    def put_back(self, value: Any) -> None:
        """Make it what it was. A container stays the same object."""
        if value is _NOT_KEPT or (self.kind == "attribute" and self.owner() is None):
            return
        now = self.held
        if value is _MISSING:
            self._delete() if now is not _MISSING else None
        elif type(value) in (list, dict, set) and type(now) is type(value):
            now.clear()
            (now.extend if isinstance(now, list) else now.update)(value)
        else:
            self._set(_copied(value))

    def _set(self, value: Any) -> None:
        match self.kind:
            case "attribute":
                setattr(self.owner(), self.name, value)
            case "entry":
                self.owner[self.name] = value
            case _:
                self.owner.cell_contents = value

    def _delete(self) -> None:
        match self.kind:
            case "attribute":
                delattr(self.owner(), self.name)
            case "entry":
                del self.owner[self.name]
            case _:
                del self.owner.cell_contents


class _Seen(set[int]):
    """What was looked at, and what of it may hold records of the training."""

    def __init__(self) -> None:
        super().__init__()
        self.variables: list[Variable] = []
        self.objects: list[Any] = []


def variables_of(model: nn.Module) -> Iterator[Variable]:
    """Yield what is to be looked at. A pass changes none of torch's own modules that it depends on."""
    return _of_model(model, _Seen())


def variables_and_objects(model: nn.Module) -> tuple[list[Variable], list[Any]]:
    """Return each variable that is come across, whatever it holds, and each function and object."""
    seen = _Seen()
    for _ in _of_model(model, seen):
        pass
    return seen.variables, seen.objects


def _of_model(model: nn.Module, seen: _Seen) -> Iterator[Variable]:
    for module in model.modules():
        for hook in module_tables.hooks_of(module):
            yield from _of_callable(hook, seen)
    for weight in model.parameters():
        for hook in autograd_nodes.hooks_of(weight):
            yield from _of_callable(hook, seen)
    for module in model.modules():
        if not type(module).__module__.startswith(_NOT_OWN):
            yield from _of_module(module, seen)


def _of_module(module: nn.Module, seen: _Seen) -> Iterator[Variable]:
    reference = weakref.ref(module)
    for name, value in (*vars(module).items(), *module.named_buffers(recurse=False)):
        if type(value) in _PLAIN or (type(value) is Tensor and value.numel() == 1):
            yield Variable("attribute", id(module), name, reference)
        elif name not in _TABLES:
            yield from _of_variable(Variable("attribute", id(module), name, reference), seen)
    for each in type(module).__mro__:
        if id(each) not in seen and not each.__module__.startswith(_NOT_OWN):
            seen.add(id(each))
            yield from _of_object(each, seen)
            for value in list(vars(each).values()):
                if isinstance(value, FunctionType) and is_own(value.__code__.co_filename):
                    yield from _of_callable(value, seen)


_TABLES = frozenset(vars(nn.Module()))


def _of_callable(call: Callable[..., Any], seen: _Seen) -> Iterator[Variable]:
    """Yield the variables of a function, of what it is bound to, and of the person's own functions that it names."""
    if id(call) in seen or len(seen) > MOST_SEEN or type(call).__module__.startswith("gradstudio."):
        return
    if isinstance(call, partial):
        yield from _of_callable(call.func, seen)
    elif isinstance(call, MethodType):
        yield from _within(call.__self__, seen)
        yield from _of_callable(call.__func__, seen)
    elif isinstance(call, FunctionType):
        seen.add(id(call))
        yield from _of_function(call, seen)
    elif isinstance(own := vars(type(call)).get("__call__"), FunctionType):
        yield from _within(call, seen)
        yield from _of_callable(own, seen)


def _of_function(function: FunctionType, seen: _Seen) -> Iterator[Variable]:
    yield from _of_object(function, seen)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        variable = Variable("cell", id(cell), name, cell)
        yield from _of_variable(variable, seen)
    names = function.__globals__
    for name in _names(function.__code__):
        if name in names:
            yield from _of_variable(Variable("entry", id(names), name, names), seen)


def _names(code: CodeType) -> set[str]:
    found = set(code.co_names)
    for each in code.co_consts:
        if isinstance(each, CodeType):
            found |= _names(each)
    return found


def _of_variable(variable: Variable, seen: _Seen) -> Iterator[Variable]:
    seen.variables.append(variable)
    value = variable.held
    if _is_kept(value):
        yield variable
    else:
        yield from _within(value, seen)


def _within(value: Any, seen: _Seen) -> Iterator[Variable]:
    """Yield what may be counted in the object that a variable holds."""
    kind = type(value)  # not isinstance, which asks a stand-in for the class of what it stands for
    if kind in (FunctionType, MethodType):
        function = value.__func__ if kind is MethodType else value
        if type(function) is FunctionType and is_own(function.__code__.co_filename):
            yield from _of_callable(value, seen)
    elif id(value) not in seen and not issubclass(kind, (ModuleType, nn.Module, Tensor)):
        of = value if issubclass(kind, type) else kind
        if not str(of.__module__).startswith(_NOT_OWN):
            seen.add(id(value))
            yield from _of_object(value, seen)


def _of_object(value: Any, seen: _Seen) -> Iterator[Variable]:
    seen.objects.append(value)
    try:
        reference, names = weakref.ref(value), vars(value)
    except Exception:  # it has none, or is somebody's object that may do anything when it is looked at
        return
    is_class = issubclass(type(value), type)
    for name, each in list(names.items()):
        if name.startswith("__"):
            continue
        if kept := _is_kept(each):
            yield Variable("attribute", id(value), name, reference)
        if is_class and (kept or not hasattr(type(each), "__get__")):  # else what it gives may be made anew each time
            seen.variables.append(Variable("attribute", id(value), name, reference))


def _is_kept(value: Any) -> bool:
    if type(value) in _PLAIN:
        return True
    if type(value) not in (list, dict, set) or len(value) > MOST_ITEMS:
        return False
    return all(type(each) in _PLAIN for each in (value.values() if isinstance(value, dict) else value))


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if type(value) in (list, dict, set):
        return value.copy() if _is_kept(value) else _NOT_KEPT
    return value

"""The arguments of a torch call, as JSON and back: numbers, texts, tensors by name, number formats, devices, slices. A
file can name only functions of torch that compute with tensors."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import get_overridable_functions, resolve_name

from gradstudio.crash.logged_calls import Ref

DEEPEST = 12
# What torch.nn and torch.distributions call and torch does not list.
_PRIVATE = "_pack_padded_sequence", "_pad_packed_sequence", "_weight_norm", "_standard_gamma", "_sample_dirichlet"
# Functions that read or write files, share memory, call Python, or expose raw memory.
_REFUSED = re.compile(
    r"numpy|reduce|backward|register|share|pin_memory|storage|data_ptr|file|apply|map_|dlpack|array|set_$|copy__$|"
    r"__set__|subclass|hook|cuda_array|untyped|save|load|import|printoptions|string|repr|format|module_load|rename|"
    r"names|autograd|custom|cudnn_|miopen|mkldnn|sparse|nested|symeig|_fused|resize"
)
_ALLOWED = re.compile(
    r"torch\.(Tensor\.|nn\.functional\.|functional\.|special\.|linalg\.|fft\.)?[A-Za-z0-9_]+(\.__get__)?$"
)


class CannotTell(ValueError):
    """A value that a crash file cannot represent. The text says which."""


class CannotCall(ValueError):
    """A call that a crash file may not contain. The text says which."""


@cache
def _names() -> dict[Callable[..., Any], str]:
    """Return the name of every function that a crash file may contain."""
    named = {each: resolve_name(each) or "" for functions in get_overridable_functions().values() for each in functions}
    named |= {getattr(torch, name): f"torch.{name}" for name in _PRIVATE if hasattr(torch, name)}
    return {
        function: name
        for function, name in named.items()
        if _ALLOWED.match(name) and not _REFUSED.search(name.removeprefix("torch."))
    }


@cache
def _functions() -> dict[str, Callable[..., Any]]:
    return {name: function for function, name in _names().items()}


def prepare() -> None:
    """Load all names from torch. That makes Python forget which warnings it has shown, so it is done early and once."""
    _names()


def function_of(name: str) -> Callable[..., Any]:
    """Return the function of torch with this name."""
    try:
        return _functions()[name]
    except KeyError:
        raise CannotCall(f"{name[:80]} is no function that a crash file may call") from None


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function of torch."""
    name = _names().get(function)
    if name is None:
        raise CannotTell(f"{getattr(function, '__name__', 'a function')} is called, which no crash file holds")
    return name


def to_json(value: Any, name_of_ref: Callable[[Ref], str | int], device: str = "") -> Any:
    """Return an argument in JSON form. `device` is the kind of device of the training."""
    if value is None or isinstance(value, bool | str) or type(value) is int:
        return value
    if isinstance(value, Ref):
        return {"t": name_of_ref(value)}
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else {"float": str(float(value))}
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": "main" if value.type == device else value.type}
    if isinstance(value, torch.memory_format | torch.layout):
        return {type(value).__name__: str(value).removeprefix("torch.")}
    if value is Ellipsis:
        return {"ellipsis": True}
    if isinstance(value, slice):
        return {"slice": [to_json(each, name_of_ref, device) for each in (value.start, value.stop, value.step)]}
    if isinstance(value, tuple):
        return {"tuple": [to_json(each, name_of_ref, device) for each in value]}
    if isinstance(value, list):
        return [to_json(each, name_of_ref, device) for each in value]
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        return {"dict": {name: to_json(each, name_of_ref, device) for name, each in value.items()}}
    raise CannotTell(f"an argument is of {type(value).__name__}, which no crash file holds")


def from_json(value: Any, tensor_of: Callable[[str | int], Tensor], device: str, deep: int = 0) -> Any:
    """Return an argument from a file. `device` replaces that of the recorded step."""
    if deep > DEEPEST:
        raise CannotCall("an argument is nested too deeply")
    if value is None or isinstance(value, bool | str | int | float):
        if type(value) is int and abs(value) >= 1 << 62:
            raise CannotCall("a number is too large")
        return value
    if isinstance(value, list):
        return [from_json(each, tensor_of, device, deep + 1) for each in value]
    if not isinstance(value, dict) or len(value) != 1:
        raise CannotCall("an argument is nothing that is known")
    ((kind, held),) = value.items()
    match kind:
        case "t" if isinstance(held, str | int):
            return tensor_of(held)
        case "float" if held in ("nan", "inf", "-inf"):
            return float(held)
        case "dtype" | "memory_format" | "layout" if isinstance(held, str):
            constant = getattr(torch, held, None)
            if isinstance(constant, torch.dtype | torch.memory_format | torch.layout):
                return constant
        case "device" if isinstance(held, str):
            return torch.device("cpu" if held == "cpu" and device != "meta" else device)
        case "ellipsis":
            return Ellipsis
        case "slice" if isinstance(held, list) and len(held) == 3:
            return slice(*[from_json(each, tensor_of, device, deep + 1) for each in held])
        case "tuple" if isinstance(held, list):
            return tuple([from_json(each, tensor_of, device, deep + 1) for each in held])
        case "dict" if isinstance(held, dict):
            return {name: from_json(each, tensor_of, device, deep + 1) for name, each in held.items()}
        case _:
            pass
    raise CannotCall("an argument is nothing that is known")

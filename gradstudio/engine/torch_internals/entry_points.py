"""Asking torch from compiled loops: where its functions lie, and which tensors the loops can read."""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gradstudio.engine.torch_internals.internal import Internal, check


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
    check(ask(handle, ctypes.addressof(answer)) == 0)
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
    check(word_at(gradient_of(plain._cdata)).value == nothing != trained.grad._cdata)
    check(word_at(gradient_of(trained._cdata)).value == trained.grad._cdata)
    is_trained = ctypes.PYFUNCTYPE(ctypes.c_bool, ctypes.c_int64)(int(entry[EntryPoint.TRAINED]))
    check(is_trained(trained._cdata) and not is_trained(plain._cdata))
    handle = id(plain) + offset
    for point, answer, other in (
        (EntryPoint.LAYOUT, EntryPoint.STRIDED, plain.to_sparse()),
        (EntryPoint.DTYPE, EntryPoint.FLOAT32, plain.half()),
        (EntryPoint.DEVICE, EntryPoint.HOST, plain.to("meta")),
    ):
        entry[answer] = _answer(entry, point, handle)
        check(_answer(entry, point, id(other) + offset) != entry[answer])
    check(_answer(entry, EntryPoint.CONTIGUOUS, handle) == 1 and _answer(entry, EntryPoint.LENGTH, handle) == 6)
    turned = plain.t()
    check(_answer(entry, EntryPoint.CONTIGUOUS, id(turned) + offset) == 0)
    check(_answer(entry, EntryPoint.DATA, handle) == plain.data_ptr())
    return entry


def _find_float_type() -> Callable[[Any], bool]:
    is_one = torch.FloatTensor.__instancecheck__
    plain = torch.ones(2, dtype=torch.float32, device="cpu")
    others = [plain.half(), plain.to_sparse(), torch._neg_view(plain)]
    check(is_one(plain) and is_one(nn.Parameter(plain)) and not any(map(is_one, others)))
    return is_one


ENTRY_POINTS = Internal(
    "libtorch's aoti_torch_get_data_ptr", "A watched step takes longer", "the figures are the same", _find_entry_points
)
FLOAT_TYPE = Internal("torch.FloatTensor", "A watched step takes longer", "the figures are the same", _find_float_type)


def entry_points() -> np.ndarray | None:
    """Return what `Addresses` needs to know of torch, in the order of EntryPoint; None where it cannot be asked."""
    return ENTRY_POINTS.get()


def are_plain_floats(tensors: Sequence[Tensor]) -> bool:
    """Return whether tensors are float32, on the host, strided, and not to be negated as they are read."""
    if (is_one := FLOAT_TYPE.get()) is not None:  # asked one by one it takes six times as long
        return all(map(is_one, tensors))
    return all(
        tensor.dtype == torch.float32 and tensor.is_cpu and tensor.layout is torch.strided and not tensor.is_neg()
        for tensor in tensors
    )

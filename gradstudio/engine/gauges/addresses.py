"""Where tensors and their gradients lie, asked of torch in compiled loops: Python asks for one at a time, and makes an
object of each gradient, which takes four times as long while caches are full of somebody's training."""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, register_jitable
from torch import Tensor
from torch.nn.parameter import is_lazy

from gradstudio.core.compiled import compiled
from gradstudio.engine.torch_internals.entry_points import EntryPoint

_WORD = ir.IntType(64)


def _call(width: int, arguments: int) -> Any:
    """Return a function for compiled loops that calls a C function at an address. It takes so many words, and returns
    a number of so many bits."""
    kind: Any = {8: types.int8, 32: types.int32, 64: types.int64}[width]
    function = ir.FunctionType(ir.IntType(width), [_WORD] * arguments)

    def generate(_context: Any, builder: Any, _signature: Any, given: Any) -> Any:
        return builder.call(builder.inttoptr(given[0], function.as_pointer()), given[1:])

    def of_one(_context: Any, address: Any, one: Any) -> Any:
        return kind(types.int64, types.int64), generate

    def of_two(_context: Any, address: Any, one: Any, other: Any) -> Any:
        return kind(types.int64, types.int64, types.int64), generate

    return intrinsic(of_one if arguments == 1 else of_two)


_word_of, _flag_of, _error_of, _error_of_two = _call(64, 1), _call(8, 1), _call(32, 1), _call(32, 2)


def _typed_at(_context: Any, address: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, given: Any) -> Any:
        return builder.load(builder.inttoptr(given[0], _WORD.as_pointer()))

    return types.int64(types.int64), generate


_at: Any = intrinsic(_typed_at)  # returns the word at an address


@compiled("boolean(int64[::1], boolean[::1], int64[::1], int64[::1], int64[::1])")
def are_alike(
    objects: np.ndarray, trained: np.ndarray, sizes: np.ndarray, entry: np.ndarray, answers: np.ndarray
) -> bool:
    """Return whether each tensor requires a gradient as it did, and has as many entries as it had."""
    there = answers.ctypes.data
    for index in range(objects.size):
        handle = objects[index] + entry[EntryPoint.OFFSET]
        if (_flag_of(entry[EntryPoint.TRAINED], _at(handle)) & 1 != 0) != trained[index]:
            return False
        if _error_of_two(entry[EntryPoint.LENGTH], handle, there) or answers[0] != sizes[index]:
            return False
    return True


@compiled("boolean(int64[::1], int64[::1])")
def have_no_gradients(objects: np.ndarray, entry: np.ndarray) -> bool:
    """Return whether no tensor has a gradient."""
    for index in range(objects.size):
        gradient = _word_of(entry[EntryPoint.GRADIENT], _at(objects[index] + entry[EntryPoint.OFFSET]))
        if _at(gradient) != entry[EntryPoint.NO_GRADIENT]:
            return False
    return True


@register_jitable  # so that compiled loops can call it
def _place(handle: int, size: int, entry: np.ndarray, answers: np.ndarray) -> int:
    """Return where a tensor has its first entry, -1 where it cannot be read there: float32, contiguous, on the host,
    and of the expected size."""
    there = answers.ctypes.data
    answers[:] = 0
    if (
        _error_of_two(entry[EntryPoint.LAYOUT], handle, there)
        or _error_of_two(entry[EntryPoint.DTYPE], handle, there + 8)
        or _error_of_two(entry[EntryPoint.DEVICE], handle, there + 16)
        or answers[0] != entry[EntryPoint.STRIDED]
        or answers[1] != entry[EntryPoint.FLOAT32]
        or answers[2] != entry[EntryPoint.HOST]
        or _error_of_two(entry[EntryPoint.CONTIGUOUS], handle, there + 24)
        or answers[3] == 0
        or _error_of_two(entry[EntryPoint.LENGTH], handle, there + 32)
        or answers[4] != size
        or _error_of_two(entry[EntryPoint.DATA], handle, there)
        or (answers[0] == 0 and size > 0)
    ):
        return -1
    return answers[0]


_FIVE = "int64[::1], int64[::1], int64[::1], int64[::1], int64[::1]"


@compiled(f"boolean({_FIVE})")
def places(objects: np.ndarray, sizes: np.ndarray, entry: np.ndarray, answers: np.ndarray, found: np.ndarray) -> bool:
    """Write where each tensor has its first entry. Return whether all can be read there. `answers`: room for five."""
    for index in range(objects.size):
        found[index] = _place(objects[index] + entry[EntryPoint.OFFSET], sizes[index], entry, answers)
        if found[index] == -1:
            return False
    return True


@compiled(f"boolean({_FIVE})")
def gradient_places(
    objects: np.ndarray, sizes: np.ndarray, entry: np.ndarray, answers: np.ndarray, found: np.ndarray
) -> bool:
    """Write the same of the gradients of the tensors, 0 for one that is not there."""
    for index in range(objects.size):
        gradient = _word_of(entry[EntryPoint.GRADIENT], _at(objects[index] + entry[EntryPoint.OFFSET]))
        found[index] = 0
        if _at(gradient) != entry[EntryPoint.NO_GRADIENT]:
            found[index] = _place(gradient, sizes[index], entry, answers)
            if found[index] == -1:
                return False
    return True


@compiled(f"boolean({_FIVE})")
def are_there(
    objects: np.ndarray, sizes: np.ndarray, entry: np.ndarray, answers: np.ndarray, found: np.ndarray
) -> bool:
    """Return whether the gradients lie where `gradient_places` has found them."""
    for index in range(objects.size):
        gradient = _word_of(entry[EntryPoint.GRADIENT], _at(objects[index] + entry[EntryPoint.OFFSET]))
        is_gone = _at(gradient) == entry[EntryPoint.NO_GRADIENT]
        if found[index] != (0 if is_gone else _place(gradient, sizes[index], entry, answers)):
            return False
    return True


LOOPS = (are_alike, have_no_gradients, places, gradient_places, are_there)


def sizes(tensors: Sequence[Tensor]) -> list[int]:
    """Return how many entries each tensor has, 0 for one that is not made yet."""
    return [0 if is_lazy(tensor) else tensor.numel() for tensor in tensors]


class Addresses:
    """Tensors that are asked for in compiled loops where they and their gradients lie. Nothing is kept from one
    question to the next but the Python objects of the tensors: a script may give each of them other memory."""

    def __init__(self, tensors: Sequence[Tensor], entry: np.ndarray) -> None:
        """`entry` is what entry_points.entry_points returns. The caller keeps the tensors alive."""
        self._entry = entry
        self._objects = np.array([id(tensor) for tensor in tensors], np.int64)
        self._sizes = np.array(sizes(tensors), np.int64)
        self._trained = np.array([tensor.requires_grad for tensor in tensors])
        self._answers = np.zeros(5, np.int64)
        self._found, self._found_gradients = np.zeros((2, len(tensors)), np.int64)
        self._are_alike, self._have_no_gradients = are_alike.compile(), have_no_gradients.compile()
        self._places, self._gradient_places = places.compile(), gradient_places.compile()
        self._are_there = are_there.compile()

    @property
    def are_as_at_first(self) -> bool:
        """Whether the same of the tensors require a gradient as at first, and all have the sizes that they had."""
        return self._are_alike(self._objects, self._trained, self._sizes, self._entry, self._answers)

    @property
    def have_no_gradients(self) -> bool:
        """Whether no tensor has a gradient."""
        return self._have_no_gradients(self._objects, self._entry)

    def of_tensors(self) -> np.ndarray | None:
        """Return where each tensor has its first entry; None where the loops that measure cannot read one there."""
        found = self._found
        return found if self._places(self._objects, self._sizes, self._entry, self._answers, found) else None

    def of_gradients(self) -> np.ndarray | None:
        """Return the same for the gradients, 0 for none."""
        found = self._found_gradients
        return found if self._gradient_places(self._objects, self._sizes, self._entry, self._answers, found) else None

    @property
    def gradients_are_there(self) -> bool:
        """Whether the gradients still lie where they were found."""
        return self._are_there(self._objects, self._sizes, self._entry, self._answers, self._found_gradients)

"""Where tensors and their gradients lie, asked of torch in compiled loops: Python asks for one at a time, and makes an
object of each gradient, which takes four times as long while caches are full of somebody's training."""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.extending import intrinsic, register_jitable
from torch import Tensor
from torch.nn.parameter import is_lazy

from gradstudio.core.compiled import compiled
from gradstudio.engine.gauges.scattered import pointer_to
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
_words_at = pointer_to(types.int64)


class _Row(IntEnum):
    """Rows of the table in a room: a word for each tensor."""

    OBJECT = 0  # where its Python object lies
    SIZE = 1  # how many entries it has
    TRAINED = 2  # whether it requires a gradient
    FOUND = 3  # where its first entry was found
    FOUND_GRADIENT = 4  # where that of its gradient was, 0 without one


TENSORS, GRADIENTS, SAME_GRADIENTS = 1, 2, 4  # what can be asked at once; the sum of those that are so is the answer

_ANSWERS = 5  # words for what torch writes
_KNOWN, _ROWS = len(EntryPoint), len(_Row)  # as whole numbers, for compiled loops
_COUNT = _KNOWN + _ANSWERS  # where in a room the number of the tensors stands, with the table behind it


# A loop is given the address of a room, as a whole number: an array takes three times as long to hand over. A room has
# what is known of torch (EntryPoint), words for answers, the number of the tensors, and the table.


@register_jitable  # so that compiled loops can call it
def _entry(room: int) -> Any:
    return carray(_words_at(room), _COUNT)


@register_jitable
def _table(room: int) -> Any:
    return carray(_words_at(room + 8 * _COUNT + 8), (_ROWS, _at(room + 8 * _COUNT)))


@compiled("boolean(int64)")
def are_alike(room: int) -> bool:
    """Return whether each tensor requires a gradient as it did, and has as many entries as it had."""
    entry, table = _entry(room), _table(room)
    answer = room + 8 * _KNOWN
    for index in range(table.shape[1]):
        handle = table[_Row.OBJECT, index] + entry[EntryPoint.OFFSET]
        if (_flag_of(entry[EntryPoint.TRAINED], _at(handle)) & 1) != table[_Row.TRAINED, index]:
            return False
        if _error_of_two(entry[EntryPoint.LENGTH], handle, answer) or _at(answer) != table[_Row.SIZE, index]:
            return False
    return True


@compiled("boolean(int64)")
def have_no_gradients(room: int) -> bool:
    """Return whether no tensor has a gradient."""
    entry, table = _entry(room), _table(room)
    for index in range(table.shape[1]):
        gradient = _word_of(entry[EntryPoint.GRADIENT], _at(table[_Row.OBJECT, index] + entry[EntryPoint.OFFSET]))
        if _at(gradient) != entry[EntryPoint.NO_GRADIENT]:
            return False
    return True


@register_jitable
def _place(handle: int, size: int, entry: np.ndarray) -> int:
    """Return where a tensor has its first entry, -1 where it cannot be read there: float32, contiguous, on the host,
    and of the expected size."""
    answers = entry[_KNOWN:]
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


@register_jitable
def _find(room: int) -> int:
    entry, table = _entry(room), _table(room)
    for index in range(table.shape[1]):
        handle = table[_Row.OBJECT, index] + entry[EntryPoint.OFFSET]
        table[_Row.FOUND, index] = found = _place(handle, table[_Row.SIZE, index], entry)
        if found == -1:
            return 0
    return TENSORS


@register_jitable
def _find_gradients(room: int) -> int:
    entry, table = _entry(room), _table(room)
    for index in range(table.shape[1]):
        gradient = _word_of(entry[EntryPoint.GRADIENT], _at(table[_Row.OBJECT, index] + entry[EntryPoint.OFFSET]))
        found = 0
        if _at(gradient) != entry[EntryPoint.NO_GRADIENT]:
            found = _place(gradient, table[_Row.SIZE, index], entry)
        table[_Row.FOUND_GRADIENT, index] = found
        if found == -1:
            return 0
    return GRADIENTS


@register_jitable
def _find_same_gradients(room: int) -> int:
    entry, table = _entry(room), _table(room)
    for index in range(table.shape[1]):
        gradient = _word_of(entry[EntryPoint.GRADIENT], _at(table[_Row.OBJECT, index] + entry[EntryPoint.OFFSET]))
        is_gone = _at(gradient) == entry[EntryPoint.NO_GRADIENT]
        now = 0 if is_gone else _place(gradient, table[_Row.SIZE, index], entry)
        if now != table[_Row.FOUND_GRADIENT, index]:
            return 0
    return SAME_GRADIENTS


@compiled("int64(int64, int64)")
def look(room: int, what: int) -> int:
    """Write where each tensor has its first entry (TENSORS), and where its gradient has it, 0 for one that is not there
    (GRADIENTS); ask whether the gradients still lie where they were found (SAME_GRADIENTS). Return for which of these
    it is so, and all can be read there."""
    found = 0
    if what & TENSORS:
        found += _find(room)
    if what & GRADIENTS:
        found += _find_gradients(room)
    if what & SAME_GRADIENTS:
        found += _find_same_gradients(room)
    return found


LOOPS = (are_alike, have_no_gradients, look)


def sizes(tensors: Sequence[Tensor]) -> list[int]:
    """Return how many entries each tensor has, 0 for one that is not made yet."""
    return [0 if is_lazy(tensor) else tensor.numel() for tensor in tensors]


class Addresses:
    """Tensors that are asked for in compiled loops where they and their gradients lie. Nothing is kept from one
    question to the next but the Python objects of the tensors: a script may give each of them other memory.

    `look` finds where the tensors and their gradients lie, and writes it into `at` and `gradients_at`, (tensors,). What
    it is asked and what it answers are sums of TENSORS, GRADIENTS and SAME_GRADIENTS; it answers for which of them the
    loops that measure can read everything there. `are_as_at_first` says whether the same of the tensors require a
    gradient as at first, and all have the sizes that they had; `have_no_gradients` whether no tensor has one."""

    def __init__(self, tensors: Sequence[Tensor], entry: np.ndarray) -> None:
        """`entry` is what entry_points.entry_points returns. The caller keeps the tensors alive."""
        count = len(tensors)
        self._room = np.zeros(_COUNT + 1 + _ROWS * count, np.int64)
        self._room[:_KNOWN], self._room[_COUNT] = entry, count
        table = self._room[_COUNT + 1 :].reshape(_ROWS, count)
        table[_Row.OBJECT] = [id(tensor) for tensor in tensors]
        table[_Row.SIZE] = sizes(tensors)
        table[_Row.TRAINED] = [tensor.requires_grad for tensor in tensors]
        self.at, self.gradients_at = table[_Row.FOUND], table[_Row.FOUND_GRADIENT]
        room: int = self._room.ctypes.data
        # Called without a frame of Python's:
        self.look: Callable[[int], int] = partial(look.unchecked(), room)
        self.are_as_at_first: Callable[[], bool] = partial(are_alike.unchecked(), room)
        self.have_no_gradients: Callable[[], bool] = partial(have_no_gradients.unchecked(), room)

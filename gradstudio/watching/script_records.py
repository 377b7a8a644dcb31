"""What hooks, own functions and modules of somebody's model write down of a training, such as a list of activations or
of gradient norms: left as it is by a pass that is made again."""

from __future__ import annotations

import sys
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from operator import is_
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gradstudio.watching.kept_pass import version
from gradstudio.watching.pass_variables import variables_and_objects
from gradstudio.watching.source_lines import is_own

MOST_LOOKED_AT = 10_000  # containers, objects and tensors
MOST_WITHIN = 1_000  # entries of a container that is looked into; a longer one is a list of numbers
MOST_BYTES = 1 << 26  # of tensors and arrays that are copied: sums, not data sets
_TABLES = (dict, OrderedDict, defaultdict, Counter)
_CONTAINERS = (list, set, deque, *_TABLES)


@contextmanager
def records_kept(model: nn.Module) -> Iterator[None]:
    """Put back what is changed in here. What is not changed is not touched, as the script may be going through it.
    Where the script has other threads, which may have changed it, only numbers and texts at the end of a list go."""
    variables, objects = variables_and_objects(model)
    held = [(each, each.held) for each in variables]
    found = _found(chain((value for _, value in held), objects))
    tables = [(each, _copied(each)) for each in found if type(each) in _CONTAINERS]
    tensors = [(each, each.clone(), version(each)) for each in _small(each for each in found if _is_sum(each))]
    arrays = [(each, each.copy()) for each in _small(each for each in found if _is_array(each))]
    try:
        yield
    finally:
        for each, value in held:
            each.hold(value)
        is_alone = threading.active_count() == 1
        for each, copy in tables:
            if is_alone or _has_noted(each, copy):
                _put_back(each, copy)
        for each, copy, before in tensors:
            if version(each) != before:
                each.data.copy_(copy)
        for each, copy in arrays:
            if each.tobytes() != copy.tobytes():
                each[...] = copy


def _found(values: Iterable[Any]) -> list[Any]:
    """Return the containers, tensors and arrays among these values and within them, and the tables of their objects."""
    found: dict[int, Any] = {}
    waiting = deque(values)
    while waiting and len(found) < MOST_LOOKED_AT:
        value = waiting.popleft()
        if type(value) not in (tuple, Tensor, np.ndarray, *_CONTAINERS):
            value = _table(value)
        if value is None or id(value) in found:
            continue
        found[id(value)] = value
        if type(value) not in (Tensor, np.ndarray) and len(value) <= MOST_WITHIN:
            waiting += value.values() if type(value) in _TABLES else value
    return list(found.values())


def _table(value: Any) -> dict[str, Any] | None:
    """Return the attributes of a function or of an object of the person's own; None for another."""
    kind = type(value)  # not isinstance, which asks a stand-in for the class of what it stands for
    if issubclass(kind, (type, nn.Module)) or not (kind is FunctionType or _is_own_class(kind)):
        return None
    try:
        table = vars(value)
    except Exception:  # somebody's object may do anything when it is looked at
        return None
    return table if type(table) is dict else None


def _is_own_class(kind: type) -> bool:
    module = str(kind.__module__)
    file = getattr(sys.modules.get(module), "__file__", None)
    return module == "__main__" or (isinstance(file, str) and is_own(file))


def _is_sum(value: Any) -> bool:
    """Return whether a value is a tensor that a pass may write to without a graph."""
    return type(value) is Tensor and not value.requires_grad and value.layout is torch.strided


def _is_array(value: Any) -> bool:
    return type(value) is np.ndarray and value.flags.writeable and not value.dtype.hasobject


def _small(arrays: Iterable[Any]) -> Iterator[Any]:
    """Yield those that are to be copied."""
    room = MOST_BYTES
    for each in arrays:
        if each.nbytes <= room:
            room -= each.nbytes
            yield each


def _copied(container: Any) -> Any:
    if type(container) in (set, *_TABLES):
        return set(container) if type(container) is set else dict(container)
    return list(container)


def _has_noted(container: Any, before: list[Any]) -> bool:
    """Return whether numbers or texts were appended to a list, and nothing else."""
    if type(container) is not list or not _are(container[: len(before)], before):
        return False
    return all(type(each) in (int, float, bool, str) for each in container[len(before) :])


def _put_back(container: Any, before: Any) -> None:
    if isinstance(before, dict):
        if not (_are(container, before) and _are(container.values(), before.values())):
            for key in [key for key in container if key not in before]:
                del container[key]
            for key, value in before.items():  # `update` of a counter adds
                container[key] = value
    elif isinstance(before, set):
        if container != before:
            container.clear()
            container.update(before)
    elif not _are(container, before):
        container.clear()
        container.extend(before)


def _are(one: Any, other: Any) -> bool:
    return len(one) == len(other) and all(map(is_, one, other))

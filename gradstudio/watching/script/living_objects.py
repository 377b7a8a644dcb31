"""All objects of a kind that exist in the process, of which the script may have told nobody."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from itertools import compress
from typing import Any, TypeVar

Kind = TypeVar("Kind")


def living(kind: type[Kind], among: list[Any] | None = None) -> list[Kind]:
    """Return the objects of a class and of those derived from it, out of all objects that Python knows or of `among`.
    Of a million objects each is only asked for its class, by its id: a class may forbid to be compared."""
    kinds = {id(each) for each in _and_subclasses(kind)}
    objects = gc.get_objects() if among is None else among
    return list(compress(objects, map(kinds.__contains__, map(id, map(type, objects)))))  # without Python's own loop


def _and_subclasses(kind: type) -> Iterator[type]:
    yield kind
    for each in type.__subclasses__(kind):
        yield from _and_subclasses(each)

"""Reads a crash file, and refuses one that is damaged. Nothing in the file is executed."""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from pydantic import ValidationError

from gradstudio.core import files
from gradstudio.session.files.crash_file import (
    BYTES,
    KEY,
    VERSION,
    CrashFile,
    CrashFileError,
    StoredTensor,
    Structure,
    other_ranks,
)

LARGEST_HEADER = 64 << 20  # bytes


def read(path: Path) -> CrashFile:
    """Return a crash file. CrashFileError if the file is not one, is damaged, or is of another version."""
    try:
        files.check_kind(path)
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            (length,) = struct.unpack("<Q", file.read(8).ljust(8, b"\xff"))
            if size < 8 or not 2 <= length <= min(LARGEST_HEADER, size - 8):
                raise CrashFileError(f"{path.name} is no crash file, or is cut short")
            header = _parsed(file.read(length).decode())
    except OSError as fault:
        raise CrashFileError(f"{path.name}: {files.reason(fault)}") from None
    except CrashFileError:
        raise
    except (UnicodeDecodeError, RecursionError, ValueError) as fault:
        raise CrashFileError(f"{path.name} is no crash file: {_brief(fault)}") from None
    return _checked(path, header, 8 + length, size)


def of_other_ranks(crash: CrashFile) -> list[CrashFile]:
    """Return the files of other ranks beside this one that have the same step and its batch."""
    beside: list[CrashFile] = []
    for path in other_ranks(crash.path, crash.structure.ranks).values():
        with suppress(CrashFileError):
            beside.append(read(path))
    return [each for each in beside if each.structure.steps and each.structure.step == crash.structure.step]


def _checked(path: Path, header: Any, begin: int, size: int) -> CrashFile:
    try:
        text = header.pop("__metadata__")[KEY]
        content = _parsed(text)
        if (version := content.get("version")) != VERSION:
            raise CrashFileError(
                f"{path.name} is a crash file of version {_brief(version)}; this program reads {VERSION}"
            )
        structure = Structure.model_validate(content)
    except CrashFileError:
        raise
    except ValidationError as fault:
        first = fault.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise CrashFileError(f"{path.name} is damaged: {_brief(where)}: {_brief(first['msg'])}") from None
    except Exception as fault:  # written by another program
        raise CrashFileError(f"{path.name} is no crash file: {_brief(fault) or type(fault).__name__}") from None
    tensors: dict[str, StoredTensor] = {}
    at = 0
    for name, entry in header.items():
        stored = _stored(entry, begin)
        if stored is None or stored.begin - begin != at:
            raise CrashFileError(f"{path.name} is damaged: the tensor {_brief(name)} is not where it should be")
        tensors[name], at = stored, at + stored.size
    if begin + at != size:
        raise CrashFileError(f"{path.name} is cut short or damaged: {size:,} bytes, {begin + at:,} expected")
    if missing := next((name for name in _tensor_names(structure) if name not in tensors), None):
        raise CrashFileError(f"{path.name} is damaged: it has no tensor {_brief(missing)}")
    if any(each.program >= len(structure.programs) for step in structure.steps for each in step.passes):
        raise CrashFileError(f"{path.name} is damaged: it has no such program")
    return CrashFile(path, structure, tensors)


def _stored(entry: Any, begin: int) -> StoredTensor | None:
    """Return the location of a tensor; None for an invalid entry."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        return None
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not (isinstance(dtype, str) and dtype in BYTES and _are_counts(shape) and _are_counts(offsets)):
        return None
    if len(offsets) != 2 or len(shape) > 16 or offsets[1] - offsets[0] != BYTES[dtype] * math.prod(shape):
        return None
    return StoredTensor(dtype, tuple(shape), begin + offsets[0], offsets[1] - offsets[0])


def _are_counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(each) is int and 0 <= each < 1 << 48 for each in value)


def _tensor_names(structure: Structure) -> Iterable[str]:
    """Yield the names of the tensors that the structure refers to."""
    yield from structure.weights.values()
    for optimizer in structure.optimizers:
        yield from (value for kept in optimizer.state.values() for value in kept.values() if isinstance(value, str))
    for step in structure.steps:
        for each in step.passes:
            yield from each.tensors.values()


def _parsed(text: str) -> Any:
    """Parse strict JSON; ValueError if it is invalid or a key occurs twice."""

    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is no JSON")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) != len(pairs):
            raise ValueError("a name comes twice")
        return dict(pairs)

    return json.loads(text, parse_constant=refuse, object_pairs_hook=once)


def _brief(what: object) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in " ".join(str(what).split()))[:100]

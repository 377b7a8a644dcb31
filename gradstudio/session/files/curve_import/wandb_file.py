"""Curves from the file of a run that W&B has written offline, `run-ID.wandb`. W&B need not be installed.

It is a LevelDB log (32 KB blocks, in which a record may be split into parts) whose records are protobuf. Sources:
wandb/sdk/internal/datastore.py, wandb/proto/wandb_internal.proto."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gradstudio.session.files.curve_import import json_file
from gradstudio.session.files.curve_import.imported_curve import Curve, CurveError, load
from gradstudio.session.files.tensorboard.messages import BYTES, VARINT, fields

BLOCK, HEAD, OPENING = 32768, 7, b":W&B"
_WHOLE, _FIRST, _LAST = 1, 2, 4  # kinds of a part
_HISTORY, _ITEM, _STEP, _KEY, _NESTED, _VALUE = 2, 1, 2, 1, 2, 16  # field numbers


def read(path: Path) -> list[Curve]:
    """Return the curves of a run. An incomplete end is ignored."""
    data = load(path)
    if not data.startswith(OPENING):
        raise CurveError(path, "not a file of W&B; allowed: run-ID.wandb of an offline run")
    try:
        records = [record for content in _records(data) for record in _history(content)]
    except (ValueError, IndexError, RecursionError, struct.error) as fault:
        raise CurveError(path, f"a record that cannot be read: {fault}") from None
    return json_file.of_records(path, records)


def _records(data: bytes) -> Iterator[bytes]:
    place, parts = HEAD, b""
    while place + HEAD <= len(data):
        left = BLOCK - place % BLOCK
        if left < HEAD:  # too short for another header
            place += left
            continue
        length, kind = struct.unpack_from("<HB", data, place + 4)
        content = data[place + HEAD : place + HEAD + length]
        place += HEAD + length
        if len(content) < length or not kind:
            return
        parts = content if kind in (_WHOLE, _FIRST) else parts + content
        if kind in (_WHOLE, _LAST):
            yield parts


def _history(content: bytes) -> Iterator[dict[str, Any]]:
    for number, kind, part in fields(content):
        if (number, kind) == (_HISTORY, BYTES):
            yield dict(_items(part))


def _items(history: bytes) -> Iterator[tuple[str, Any]]:
    for number, kind, part in fields(history):
        if (number, kind) == (_STEP, BYTES):
            yield from (("_step", step) for at, of, step in fields(part) if (at, of) == (1, VARINT))
        if (number, kind) != (_ITEM, BYTES):
            continue
        names: list[str] = []
        value: Any = None
        for at, _, inner in fields(part):
            if at in (_KEY, _NESTED) and inner:
                names.append(inner.decode("utf-8", "replace"))
            elif at == _VALUE:
                value = json.loads(inner)
        yield "/".join(names), value

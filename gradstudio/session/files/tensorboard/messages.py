"""The few required messages of an event file, in protobuf's encoding: written and read without TensorBoard, TensorFlow
or protobuf.

Sources: tensorflow/core/util/event.proto, framework/summary.proto, framework/tensor.proto;
protobuf.dev/programming-guides/encoding."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # protobuf's wire types
FLOAT, DOUBLE, STRING = 1, 2, 7  # TensorFlow's DataType

VERSION = b"brain.Event:2"  # of the first event of a file


def event(wall_time: float, step: int, summary: bytes) -> bytes:
    """Return an event; `wall_time` in seconds since 1970."""
    return _field(1, wall_time) + _field(2, step) + _field(5, summary)


def opening(wall_time: float) -> bytes:
    """Return the first event of a file."""
    return _field(1, wall_time) + _field(3, VERSION)


def text(tag: str, content: str) -> bytes:
    """Return a summary that TensorBoard shows among its texts, as Markdown."""
    metadata = _field(1, _field(1, b"text"))
    tensor = _field(1, STRING) + _field(8, content.encode("utf-8", "replace"))
    return _field(
        1, _field(1, f"{tag}/text_summary".encode("utf-8", "replace")) + _field(8, tensor) + _field(9, metadata)
    )


def scalars(tags: Sequence[str], table: np.ndarray) -> np.ndarray:
    """Return a summary for each row of float32 numbers, one number for each tag: bytes, (rows, length of a summary)."""
    parts, slots, length = [], [], 0
    for tag in tags:
        part = _field(1, _field(1, tag.encode("utf-8", "replace")) + bytes([2 << 3 | FIXED32]) + bytes(4))
        length += len(part)
        parts.append(part)
        slots.append(length - 4)
    made = np.tile(np.frombuffer(b"".join(parts), np.uint8), (len(table), 1))
    places = (np.array(slots, np.intp)[:, None] + np.arange(4)).ravel()
    made[:, places] = np.ascontiguousarray(table, "<f4").view(np.uint8)
    return made


def histogram(tag: str, values: np.ndarray) -> bytes:
    """Return a summary that TensorBoard shows among its histograms: finite values in thirty equal buckets."""
    counts, edges = np.histogram(values, 30)
    parts = [
        float(values.min()),
        float(values.max()),
        float(len(values)),
        float(values.sum()),
        float(np.square(values).sum()),
    ]
    numbers = b"".join(_field(number, value) for number, value in enumerate(parts, 1))
    buckets = _field(6, edges[1:].astype("<f8").tobytes()) + _field(7, counts.astype("<f8").tobytes())
    return _field(1, _field(1, tag.encode("utf-8", "replace")) + _field(5, numbers + buckets))


def fields(content: bytes) -> Iterator[tuple[int, int, Any]]:
    """Yield number, encoding and content of each field of a message: an int for a VARINT, otherwise bytes. ValueError
    or IndexError for bytes that are not a message."""
    place = 0
    while place < len(content):
        key, place = _varint(content, place)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            part, place = _varint(content, place)
        else:
            if kind == BYTES:
                length, place = _varint(content, place)
            elif kind in (FIXED32, FIXED64):
                length = 4 if kind == FIXED32 else 8
            else:
                raise ValueError("no protobuf message")
            part = content[place : place + length]
            place += length
            if place > len(content):
                raise ValueError("no protobuf message")
        yield number, kind, part


def _field(number: int, value: bytes | int | float) -> bytes:
    """Return a field: bytes as they are, an int as a VARINT, a float with 64 bits."""
    if isinstance(value, bytes):
        return _as_varint(number << 3 | BYTES) + _as_varint(len(value)) + value
    if isinstance(value, float):
        return _as_varint(number << 3 | FIXED64) + struct.pack("<d", value)
    return _as_varint(number << 3 | VARINT) + _as_varint(value)


def _as_varint(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])


def _varint(content: bytes, place: int) -> tuple[int, int]:
    """Return the number that begins at `place`, and the position after it."""
    value = shift = 0
    while shift < 70:
        byte = content[place]
        value |= (byte & 0x7F) << shift
        place += 1
        if byte < 0x80 and value < 1 << 64:
            return value, place
        shift += 7
    raise ValueError("no protobuf message")

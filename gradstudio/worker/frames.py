"""The protocol GSW1: frames on the standard input and output of a worker.

    u32 length of the head | u32 length of the rest | head: strict JSON {"m": kind, ...} | the rest: raw bytes

Both lengths are little-endian. Before its first frame a worker writes a line `GSW1 <nonce>` with the nonce that it was
started with: a login on another machine may print something first."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from typing import IO, Any, NamedTuple

from gradstudio.core.typed_json import NotConforming, dumps, loads

PROTOCOL = 1
MOST_HEAD, MOST_RAW = 64 << 20, 1 << 30  # bytes
MOST_NOISE = 64 << 10  # bytes before the first frame
_LENGTHS = struct.Struct("<II")


class Frame(NamedTuple):
    head: dict[str, Any]
    raw: memoryview
    size: int = 0  # bytes of all of it


class BrokenFrame(ValueError):
    """The bytes read are not a frame."""


def greeting(nonce: str) -> bytes:
    """Return the line before the first frame."""
    return f"GSW{PROTOCOL} {nonce}\n".encode()


def pack(head: dict[str, Any], raw: Iterable[Any] = ()) -> list[Any]:
    """Return a frame as pieces to write, one after the other."""
    text = dumps(head)
    pieces = [memoryview(each).cast("B") for each in raw if len(each)]
    return [_LENGTHS.pack(len(text), sum(map(len, pieces))) + text, *pieces]


def write(file: int, pieces: Iterable[Any]) -> int:
    """Write pieces to a file descriptor, and return their bytes."""
    count = 0
    for piece in pieces:
        left = memoryview(piece)
        count += len(left)
        while left:
            left = left[os.write(file, left) :]
    return count


def find_greeting(file: IO[bytes], nonce: str) -> str | None:
    """Read up to the greeting. Return what was printed before it; None if it does not arrive."""
    noise = b""
    while len(noise) < MOST_NOISE:
        line = file.readline(MOST_NOISE)
        if not line:
            break
        if line.endswith(greeting(nonce)):
            return noise.decode(errors="replace")
        noise += line
    return None


def read(file: IO[bytes]) -> Frame | None:
    """Return the next frame, None at the end. BrokenFrame if there is something else."""
    lengths = file.read(_LENGTHS.size)
    if len(lengths) < _LENGTHS.size:
        return None
    head, raw = _LENGTHS.unpack(lengths)
    if head > MOST_HEAD or raw > MOST_RAW:
        raise BrokenFrame(f"a frame of {head + raw:,} bytes")
    text, rest = file.read(head), file.read(raw)
    if len(text) < head or len(rest) < raw:
        return None
    try:
        parsed = loads(text)
    except NotConforming as fault:
        raise BrokenFrame(str(fault)) from None
    if not isinstance(parsed, dict) or not isinstance(parsed.get("m"), str):
        raise BrokenFrame("a frame without a name")
    return Frame(parsed, memoryview(rest), _LENGTHS.size + head + raw)

"""TensorFlow's record format, in which TensorBoard's event files are written.

A record: its length (8 bytes, little-endian), the length's checksum (4), the content, the content's checksum (4). A
checksum is a masked CRC-32C; those of many records are computed at once, as a loop over bytes in Python takes minutes
for a long log. Source: tensorflow/core/lib/io/record_writer.h and lib/hash/crc32c.h."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

import numpy as np

HEAD, FOOT = 12, 4  # bytes around a record's content
FEW = 50  # records of one length, below which numpy's overhead exceeds that of Python
LONG, STRETCH = 1 << 16, 4096  # bytes of a record that is processed in stretches, and of a stretch
_POLYNOMIAL = 0x82F63B78  # Castagnoli's, reversed


def pack(contents: Sequence[bytes]) -> bytes:
    """Return the records of these contents as bytes, one after the other."""
    lengths = [struct.pack("<Q", len(content)) for content in contents]
    parts = zip(lengths, checksums(lengths), contents, checksums(contents), strict=True)
    return b"".join(b"".join((length, struct.pack("<I", of_length), content, struct.pack("<I", of_content)))
                    for length, of_length, content, of_content in parts)  # fmt: skip


def unpack(data: bytes) -> tuple[list[bytes], str]:
    """Return the contents of the records before the first damaged one, and what is wrong with it: empty if the rest is
    merely not written yet."""
    heads, contents, feet, place = [], [], [], 0
    while place + HEAD <= len(data):
        (length,) = struct.unpack_from("<Q", data, place)
        heads.append(data[place : place + HEAD])
        if place + HEAD + length + FOOT > len(data):
            break
        contents.append(data[place + HEAD : place + HEAD + length])
        place += HEAD + length + FOOT
        feet.append(data[place - FOOT : place])
    wrong = [_first_wrong([head[:8] for head in heads], [head[8:] for head in heads]), _first_wrong(contents, feet)]
    broken = min((index for index in wrong if index is not None), default=None)
    if broken is None:
        return contents, ""
    return contents[
        :broken
    ], f"record {broken + 1} is damaged, at byte {sum(HEAD + len(content) + FOOT for content in contents[:broken]):,}"


def checksums(contents: Sequence[bytes]) -> list[int]:
    """Return the masked CRC-32C of each; those of one length are computed together."""
    crcs = np.zeros(len(contents), np.uint32)
    lengths = np.array([len(content) for content in contents], np.int64)
    for length in np.unique(lengths).tolist():
        alike = np.flatnonzero(lengths == length).tolist()
        if len(alike) < FEW:
            crcs[alike] = [_crc32c_of_one(contents[index]) for index in alike]
        else:
            crcs[alike] = _crc32c(
                np.frombuffer(b"".join(contents[index] for index in alike), np.uint8).reshape(len(alike), length)
            )
    return (((crcs >> 15) | (crcs << 17)) + np.uint32(0xA282EAD8)).tolist()


def _crc32c(rows: np.ndarray) -> np.ndarray:
    """Return the CRC-32C of each row of bytes."""
    return ~_after(np.full(len(rows), 0xFFFFFFFF, np.uint32), rows)


def _after(crc: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the register after each row of bytes."""
    for column in np.ascontiguousarray(rows.T):
        crc = _TABLE[(crc ^ column) & 0xFF] ^ (crc >> 8)
    return crc


def _crc32c_of_one(content: bytes) -> int:
    crc, stretches = 0xFFFFFFFF, len(content) // STRETCH if len(content) >= LONG else 0
    if stretches:
        crc = _after_stretches(crc, np.frombuffer(content, np.uint8, stretches * STRETCH).reshape(stretches, STRETCH))
    for byte in content[stretches * STRETCH :]:
        crc = _NUMBERS[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _after_stretches(crc: int, rows: np.ndarray) -> int:
    """Return the register after all rows, one after the other. All are computed at once: the register after a row is
    the row's effect on 0, combined, for each bit that was set before it, with the effect of as many zeros on that bit.
    """
    own = _after(np.zeros(len(rows), np.uint32), rows).tolist()
    moved = _after(np.uint32(1) << np.arange(32, dtype=np.uint32), np.zeros((32, STRETCH), np.uint8)).tolist()
    for after in own:
        for bit in range(32):
            if crc >> bit & 1:
                after ^= moved[bit]
        crc = after
    return crc


def _first_wrong(contents: Sequence[bytes], written: Iterable[bytes]) -> int | None:
    pairs = zip(checksums(contents), written, strict=True)
    return next((index for index, (right, data) in enumerate(pairs) if struct.pack("<I", right) != data), None)


def _table() -> np.ndarray:
    crc = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        crc = (crc >> 1) ^ np.where(crc & 1, np.uint32(_POLYNOMIAL), np.uint32(0))
    return crc


_TABLE = _table()
_NUMBERS = _TABLE.tolist()

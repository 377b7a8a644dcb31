"""How much memory is free, for this machine and for the container that the program runs in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

UNKNOWN_SIZE = 1 << 62  # bytes, where the system does not report it


def free() -> int:
    """Return the bytes of memory that are free now, UNKNOWN_SIZE if the system does not report it."""
    limits = [_of_machine(), _of_group()]
    return min((size for size in limits if size is not None), default=UNKNOWN_SIZE)


def _of_machine() -> int | None:
    """Return the memory that programs can still use without swapping, according to Linux."""
    return _number(Path("/proc/meminfo"), lambda text: int(text.partition("MemAvailable:")[2].split()[0]) * 1024)


def _of_group() -> int | None:
    """Return the rest of the container's limit; cached files can be evicted."""
    group = Path("/sys/fs/cgroup")
    limit, used = (_number(group / name, int) for name in ("memory.max", "memory.current"))
    cached = _number(group / "memory.stat", lambda text: int(text.partition("\ninactive_file ")[2].split()[0]))
    return None if limit is None or used is None else max(limit - used + (cached or 0), 0)


def _number(path: Path, read: Callable[[str], int]) -> int | None:
    try:
        return read(path.read_text())
    except (OSError, ValueError, IndexError):
        return None

"""The server from which ranks are forked, for the tests that need one: it takes seconds to start, and is shared."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import active_children, forkserver
from pathlib import Path
from typing import Any

from gradstudio.core import process_server

_started: int | None = None  # its process


@contextmanager
def shared() -> Iterator[None]:
    """Have a server that knows of ranks: each rank of another one, which some other test has begun, would import torch.
    It is left for the next file, and ends with the tests."""
    global _started
    server: Any = forkserver._forkserver  # pyright: ignore[reportAttributeAccessIssue]
    if server._forkserver_pid != _started:
        server._stop()
    if server._forkserver_pid is None:
        from gradstudio.engine.ranks import crew

        process_server.context(crew.PRELOADED)
        process_server.start()
    _started = server._forkserver_pid
    yield
    assert not active_children()


def end() -> None:
    """End the server as the program's end does, and wait for it."""
    server: Any = forkserver._forkserver  # pyright: ignore[reportAttributeAccessIssue]
    server._stop()


def print_into(file: Path, module: str, *words: str) -> None:
    """Let the `main` of a module print into a file."""
    from importlib import import_module

    with file.open("w", encoding="utf-8") as sys.stdout:
        import_module(module).main(*words)

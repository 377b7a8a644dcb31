"""Ports for programs that find each other at one."""

from __future__ import annotations

import socket
from contextlib import ExitStack


def free_ports(count: int) -> list[str]:
    """Return the numbers of ports that nothing listens at."""
    with ExitStack() as kept:
        free = [kept.enter_context(socket.socket()) for _ in range(count)]
        for each in free:
            each.bind(("127.0.0.1", 0))
        return [str(each.getsockname()[1]) for each in free]

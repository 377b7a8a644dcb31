"""A connection through a port of its own, with a delay, which can stall and be cut."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue


class SlowConnection:
    """Passes bytes on, each way, `delay` seconds after they have come."""

    def __init__(self, to: int, delay: float) -> None:
        self._to, self._delay = to, delay
        self._open = threading.Event()
        self._open.set()
        self._ends: list[socket.socket] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def stall(self) -> None:
        """Pass nothing on from now on; both ends stay open."""
        self._open.clear()

    def cut(self) -> None:
        """Close everything."""
        for end in (self._server, *self._ends):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                here = self._server.accept()[0]
                there = socket.create_connection(("127.0.0.1", self._to))
                self._ends += [here, there]
                for one, other in ((here, there), (there, here)):
                    way = SimpleQueue[tuple[float, bytes]]()
                    threading.Thread(target=self._take, args=(one, way), daemon=True).start()
                    threading.Thread(target=self._give, args=(other, way), daemon=True).start()

    def _take(self, end: socket.socket, way: SimpleQueue[tuple[float, bytes]]) -> None:
        data = b"-"
        while data:
            data = b""
            with suppress(OSError):
                data = end.recv(1 << 16)
            way.put((time.monotonic() + self._delay, data))

    def _give(self, end: socket.socket, way: SimpleQueue[tuple[float, bytes]]) -> None:
        data = b"-"
        while data:
            due, data = way.get()
            time.sleep(max(due - time.monotonic(), 0.0))
            self._open.wait()
            with suppress(OSError):
                end.sendall(data) if data else end.shutdown(socket.SHUT_WR)


@contextmanager
def slow(to: int, delay: float) -> Iterator[SlowConnection]:
    """Yield a connection to a port."""
    one = SlowConnection(to, delay)
    try:
        yield one
    finally:
        one.cut()

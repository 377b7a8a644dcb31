"""Letters of the ranks to rank 0, through the store by which their processes found each other. A separate thread puts
them there and takes them out, so no training waits for a letter."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

from gradstudio.engine.torch_internals import process_groups

INTERVAL = 0.25  # seconds between two letters of a rank, and between two checks of its box


class Mail:
    """The messages of one run in torch's store: each rank leaves a card that identifies it, and then numbered
    letters."""

    def __init__(self, run: str) -> None:
        """`run` identifies it among those of the process, in the same way on all ranks. RuntimeError without a
        store."""
        store = process_groups.store()
        if store is None:
            raise RuntimeError("the ranks have no store in common")
        self._store = process_groups.box(f"gradstudio/{run}", store)
        self._sent = 0
        self._read: dict[int, int] = {}

    def show(self, rank: int, card: dict[str, Any]) -> None:
        """Leave the card of this rank."""
        self._store.set(f"card/{rank}", json.dumps(card))

    def card(self, rank: int) -> dict[str, Any] | None:
        """Return the card of a rank; None before it has left one."""
        data = self._take(f"card/{rank}", keep=True)
        return None if data is None else json.loads(data)

    def send(self, rank: int, letter: bytes) -> None:
        """Store the next letter of this rank."""
        self._store.set(f"letter/{rank}/{self._sent}", letter)
        self._sent += 1

    def receive(self, rank: int) -> bytes | None:
        """Take the next letter of a rank out of its box; None if there is none."""
        place = self._read.get(rank, 0)
        data = self._take(f"letter/{rank}/{place}", keep=False)
        if data is not None:
            self._read[rank] = place + 1
        return data

    def _take(self, key: str, *, keep: bool) -> bytes | None:
        if not self._store.check([key]):  # getting a missing key would wait for it
            return None
        content = bytes(self._store.get(key))
        if not keep:
            self._store.delete_key(key)
        return content


class Postman:
    """Visits the runs of a process repeatedly, in a separate thread, until it is dismissed."""

    def __init__(self) -> None:
        self._rounds: list[Callable[[], object]] = []
        self._thread: threading.Thread | None = None
        self._dismissed = threading.Event()

    def call_on(self, run: Callable[[], object]) -> None:
        """Visit this run at every round from here on."""
        self._rounds.append(run)
        if self._thread is None:
            self._thread = threading.Thread(target=self._go_round, name="gradstudio ranks", daemon=True)
            self._thread.start()

    def dismiss(self) -> None:
        """Stop visiting. A round in progress is completed."""
        self._dismissed.set()
        if self._thread is not None:
            self._thread.join()

    def _go_round(self) -> None:
        while not self._dismissed.wait(INTERVAL):
            for each in list(self._rounds):
                each()

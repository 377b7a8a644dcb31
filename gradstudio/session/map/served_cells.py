"""Cells of a map that a worker trains for another machine, on all cores that it may use."""

from __future__ import annotations

import json
import threading
from collections import deque
from contextlib import closing
from pathlib import Path
from typing import Any

from gradstudio.core import trust
from gradstudio.core.typed_json import from_plain, to_plain
from gradstudio.session.map import map_plan, workers
from gradstudio.session.map.map_plan import Job
from gradstudio.session.map.outcome import CellResult
from gradstudio.session.remote.served_looks import ServedTask
from gradstudio.worker.worker_process import Said


class ServedCells(ServedTask):
    """Some cells of one plan."""

    def __init__(self, head: dict[str, Any]) -> None:
        super().__init__(head["to"])
        trust.agree_here(*from_plain(list[str], head["agreed"]))
        self._plan = map_plan.from_json(json.loads(from_plain(str, head["plan"])), Path("map"))
        self._jobs = from_plain(list[Job], head["jobs"])
        self._done = deque[tuple[Job, CellResult]]()
        self._problem = ""
        self._paused, self._stopping = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._train, name="cells of a map", daemon=True)

    def begin(self) -> None:
        self._thread.start()
        super().begin()

    def pause(self, paused: bool) -> None:
        """Train no further cells, or continue."""
        (self._paused.set if paused else self._paused.clear)()

    def stop(self) -> None:
        self._stopping.set()

    def news(self) -> list[Said]:
        self.over = not self._thread.is_alive()
        done = [self._done.popleft() for _ in range(len(self._done))]
        said: list[Said] = [({"m": "cells", "to": self.to, "done": to_plain(done)}, ())] if done else []
        return [*said, ({"m": "end", "to": self.to, "problem": self._problem}, ())] if self.over else said

    def _train(self) -> None:
        try:
            with closing(workers.Pool()) as pool:
                self._done.extend(
                    workers.results(pool, self._plan, self._jobs, self._paused.is_set, self._stopping.is_set)
                )
        except Exception as fault:
            self._problem = str(fault) or type(fault).__name__

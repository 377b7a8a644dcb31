"""Trains the cells of a map by a worker at a place."""

from __future__ import annotations

import json
import queue
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from gradstudio.core.typed_json import from_plain, to_plain
from gradstudio.core.worker_places import Place
from gradstudio.session import own_model
from gradstudio.session.map.map_plan import Job, Plan
from gradstudio.session.map.outcome import CellResult
from gradstudio.session.map.workers import LOOK, CrewError
from gradstudio.session.remote.worker_pool import WorkerPool
from gradstudio.worker.frames import Frame


class PlaceCells:
    """Has cells trained at one place."""

    def __init__(self, place: Place, pool: WorkerPool) -> None:
        self.place, self._pool = place, pool

    def results(
        self, plan: Plan, jobs: Iterable[Job], halted: Callable[[], bool], stopped: Callable[[], bool]
    ) -> Iterator[tuple[Job, CellResult]]:
        """Yield the result of each job as it arrives. While `halted`, no job is trained; once `stopped`, this ends.
        CrewError if the place is gone."""
        process, results = self._pool.warm(), _Results()
        number, paused = process.add(results), False
        agreed = () if any(map(own_model.needs_agreement, plan.of_panels)) else own_model.hashes(*plan.of_panels)
        asked = {"plan": json.dumps(plan.as_json()), "jobs": to_plain(list(jobs)), "agreed": list(agreed)}
        process.post({"m": "cells", "to": number, **asked})
        try:
            while not stopped():
                if halted() != paused:
                    paused = not paused
                    process.post({"m": "pause_cells", "to": number, "paused": paused})
                with suppress(queue.Empty):
                    found = results.news.get(timeout=LOOK)
                    if isinstance(found, str):
                        if found:
                            raise CrewError(f"{self.place.name}: {found}")
                        return
                    yield from found
        finally:
            process.drop(number)
            process.post({"m": "free", "of": number})

    def close(self) -> None:
        """Do nothing: others use the place too."""


class _Results:
    """The results of cells as the worker sends them, followed by the reason why there are no more; "" if all
    arrived."""

    def __init__(self) -> None:
        self.news = queue.SimpleQueue[list[tuple[Job, CellResult]] | str]()

    def take(self, frame: Frame) -> None:
        if frame.head["m"] == "cells":
            self.news.put(from_plain(list[tuple[Job, CellResult]], frame.head["done"]))
        else:
            self.news.put(from_plain(str, frame.head["problem"]))

    def unheard(self, seconds: float) -> None:
        pass

    def lose(self, why: str, trace: str) -> None:
        self.news.put(f"the worker {why}; the map can be continued later")

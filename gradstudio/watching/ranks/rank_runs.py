"""The runs of this process in which other ranks take part."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from itertools import count
from typing import Any

from gradstudio.watching.hooks.guard import say
from gradstudio.watching.hooks.rank_place import Place
from gradstudio.watching.ranks.joined_run import Collector, Joinable, Sender
from gradstudio.watching.ranks.mail import Mail, Postman

OnRecord = Callable[[Any, Any], object]

_begun = count()  # runs of this process, including those of a watch that has ended


class RankRuns:
    """Joins the runs of all ranks: the first run of each rank with the first of the others, the second with the second,
    and so on."""

    def __init__(self, on_record: OnRecord, keep: Callable[[Any], object]) -> None:
        """`on_record`: called with a run and the outcome of a step of all ranks. `keep`: records a run of this rank
        separately."""
        self._on_record, self._keep = on_record, keep
        self._postman = Postman()

    def join(self, local_run: Joinable, place: Place, share: dict[str, list[int]]) -> Sender | Collector | None:
        """Return the handler of a run's steps from the first on; None if the ranks cannot reach one another. `share` is
        this rank's shard of each layer."""
        known = hashlib.sha256(repr([(layer.name, layer.size) for layer in local_run.layers]).encode()).hexdigest()
        card = {
            "layers": known, "run": local_run.id, "host": place.host, "process": os.getpid(),
            "local_rank": place.local_rank, **share,
        }  # fmt: skip
        try:
            mail = Mail(str(next(_begun)))
            if place.rank:
                joined = Sender(mail, place, card, local_run, lambda: self._keep(local_run))
            else:
                joined = Collector(mail, place, card, local_run, lambda outcome: self._on_record(local_run, outcome))
        except (RuntimeError, OSError, ValueError) as fault:
            say(f"each rank has a run of its own: {' '.join(str(fault).split())[:200]}")
            return None
        self._postman.call_on(joined.go_round)
        return joined

    def close(self) -> None:
        """Stop sending and reading."""
        self._postman.dismiss()

"""The position of a process among those that train together."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

import torch.distributed as dist

_JOB = "SLURM_JOB_ID"


@dataclass(frozen=True)
class Place:
    """A rank of a training of several processes."""

    rank: int
    ranks: int
    local_rank: str  # on its host; "" if unknown
    host: str
    job: str  # in Slurm; "" without

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Its facts, as name and value."""
        local = f", local rank {self.local_rank}" if self.local_rank else ""
        facts = [("rank", f"{self.rank} of {self.ranks}, on {self.host}{local}")]
        return [*facts, ("Slurm job", self.job)] if self.job else facts


def current_place() -> Place | None:
    """Return the place of this process; None if it trains alone, as far as torch knows."""
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return None
    around = os.environ
    local = around.get("LOCAL_RANK") or around.get("SLURM_LOCALID") or ""
    return Place(dist.get_rank(), dist.get_world_size(), local, socket.gethostname(), around.get(_JOB, ""))

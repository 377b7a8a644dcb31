"""Which rank produced the first NaN or Inf of a run that several make together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.rules.nan_on_a_rank import of_losses
from gradstudio.core.unknown import is_known
from gradstudio.watching.births.step_births import Birth


def blame_ranks(step: int, losses: Mapping[int, float], births: Mapping[int, Birth]) -> tuple[Birth, Finding | None]:
    """Return where the value was born, or why that is unknown, and the finding that names the ranks which produced it:
    those whose own loss is non-finite; if all are finite, those that have found it in their own passes. No finding if
    it is all of them, or none."""
    broken = [rank for rank, loss in losses.items() if is_known(loss) and not math.isfinite(loss)]
    of_loss = bool(broken)
    broken = broken or [rank for rank, (own_birth, _) in births.items() if own_birth is not None]
    for rank in broken:
        own_birth, _ = births.get(rank, (None, ""))
        if own_birth is not None:
            birth: Birth = replace(own_birth, rank=rank, ranks=tuple(broken)), ""
            break
    else:
        rank = broken[0] if broken else 0
        why = births.get(rank, (None, ""))[1]
        birth = None, f"on rank {rank}: {why}" if why and broken else why
    sound = [rank for rank in losses if rank not in broken]
    if not broken or not sound:
        return birth, None
    return birth, of_losses(step, broken, {rank: losses[rank] for rank in (broken[0], sound[0])} if of_loss else {})

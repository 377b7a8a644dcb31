"""The rank that produced the first NaN or Inf, which averaging then spreads to all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.rule import PeriodicRule
from gradstudio.core.history import History
from gradstudio.core.text import join_with_and, number


@dataclass
class NanOnARank(PeriodicRule):
    """Fires if, at the first non-finite step, the own gradients of some ranks are non-finite and those of others are
    finite."""

    rule = "nan_on_a_rank"

    _told_once: bool = False

    def look(self, history: History, state: Progress) -> None:
        step = len(history) - 1
        if self._told_once or not history.broken or len(history.ranks) <= step:
            return
        self._told_once = True
        norms = history.ranks.column("norm", step, step + 1)[0]
        broken, sound = np.flatnonzero(~np.isfinite(norms)), np.flatnonzero(np.isfinite(norms))
        if not len(broken) or not len(sound):
            return
        ranks = _ranks_in_words(broken.tolist())
        self.tell(
            history, "critical", f"NaN or Inf on {ranks}",
            f"At step {step:,}, before the gradients were averaged, that of {ranks} was not finite, and that of rank "
                f"{sound[0]} had a norm of {number(float(norms[sound[0]]))}.",
            "The mean over the ranks takes it to all of them, and so does the next update. Look at the share of the "
                f"batch that {ranks} had.",
            ("problem.nan_every=0",), first=step,
        )  # fmt: skip


def of_losses(step: int, broken: Sequence[int], losses: Mapping[int, float]) -> Finding:
    """Return the finding for a watched script in which these ranks produced the value. `losses` are those of the first
    of them and of a sound one; empty if the losses of all ranks were finite."""
    ranks, one = _ranks_in_words(broken), broken[0]
    texts = [f"that of rank {rank} was {number(loss)}" for rank, loss in losses.items() if rank != one]
    evidence = (
        f"At step {step:,} the loss of rank {one} was {number(losses[one])}, and {texts[0]}."
        if texts
        else f"At step {step:,} it was made in the passes of {ranks}, and the losses of all ranks were finite."
    )
    return Finding(
        NanOnARank.rule, "critical", f"NaN or Inf on {ranks}", step, step, (), evidence,
        "Once gradients are reduced those of all ranks have it, and after the next update the weights. Look at the "
            f"batch that {ranks} had.",
        (),
    )  # fmt: skip


def _ranks_in_words(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {join_with_and(list(ranks))}"

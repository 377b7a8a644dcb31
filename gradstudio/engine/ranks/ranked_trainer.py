"""The trainer that a run on several ranks is driven with. It has no model: the ranks serve its requests."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from gradstudio.core.experiment import Experiment, check_passed, find_knob
from gradstudio.core.knobs import KnobError, Value
from gradstudio.core.provenance import Provenance, ProvenanceUnknown
from gradstudio.core.rank_figures import RANK_COLUMNS, RankFigures
from gradstudio.core.ranks_allowed import RankFailure
from gradstudio.core.row import Row
from gradstudio.core.text import join_with_and
from gradstudio.core.unknown import UNKNOWN, is_known, known_mask
from gradstudio.engine.ranks import collectives
from gradstudio.engine.ranks.crew import Crew, CrewStopped
from gradstudio.engine.step.checks import Requests

NOT_JOINED = "not compared: each rank has only its share of the batch"


class RankedTrainer:
    """Answers the run's driver like a Trainer. Its rows are those of rank 0, with loss and accuracy averaged over the
    ranks."""

    def __init__(self, experiment: Experiment, stopped: Callable[[], bool] = lambda: False) -> None:
        """Start the ranks. KnobError and RankFailure if they cannot start."""
        self.experiment = experiment
        self.subject = SimpleNamespace(judged=True)
        self.step = 0
        self.requests = Requests()  # of the next step
        placement = collectives.placement(experiment.run.device, experiment.distributed.ranks)
        self.notice = placement.notice  # of their placement; "" without
        self._crew = Crew(experiment, stopped, placement)
        self._over = False  # whether the ranks are ended
        self._failure: RankFailure | None = None  # of a rank, while it searched for the first NaN or Inf
        self._broken: tuple[int, ...] = ()  # ranks with a non-finite loss or gradient of their own in the last step
        self._drifts: list[float] = []  # of each rank, as last measured; step 0 measures them
        self.layers, environment, self.test_interval = self._crew.about
        self.environment = {**environment, "ranks": str(experiment.distributed.ranks)}
        if placement.backend:
            self.environment["device"] = join_with_and(placement.devices)

    def check(self, experiment: Experiment) -> None:
        """Raise KnobError if the ranks cannot train with these values."""
        self._crew.ask([0], "check", experiment)

    def change(self, name: str, value: Value) -> None:
        """Give a live knob a new value on every rank, between two steps."""
        if not find_knob(name).live:
            raise KnobError(f"{name} acts on restart and cannot change while the run goes on")
        experiment = self.experiment.with_value(name, value)
        check_passed(experiment, self.experiment.problem.skip_batches if self.step else 0)
        self.test_interval = self._crew.ask_all("change", (name, value))[0]
        self.experiment = experiment

    def skip_batches(self, stopped: Callable[[], bool] = lambda: False) -> bool:
        """Return True: each rank skips batches at its step."""
        return True

    def advance(self) -> list[Row]:
        """Make one step on every rank, and return its row; none if the run was stopped in it."""
        if self._failure is not None:
            raise self._failure
        compare, asked = self.requests.compare, replace(self.requests, compare=False, accumulation=False)
        self._crew.step = self.step
        try:
            answers = self._crew.ask_all("step", asked)
        except BaseException as why:
            self._over = True
            if isinstance(why, CrewStopped):
                return []
            raise
        self.requests = Requests()
        self.step += 1
        return [self._join(answers, NOT_JOINED if compare else "")]

    def settle(self) -> list[Row]:
        """Return nothing: each row is read at once."""
        return []

    def explain(self) -> Provenance:
        """Return where the first non-finite value was born, on the first rank that had one of its own in the latest
        step; that rank repeats the step. ProvenanceUnknown if that cannot be determined."""
        rank = self._broken[0] if self._broken else 0
        try:
            answer: Provenance | str = self._crew.ask([rank], "explain")[0]
        except CrewStopped:
            self._over = True
            raise ProvenanceUnknown("the search was stopped") from None
        except RankFailure as why:  # report it again when the run continues
            self._over, self._failure = True, why
            raise ProvenanceUnknown(str(why).removesuffix(".")) from None
        if isinstance(answer, str):
            raise ProvenanceUnknown(f"{answer} (rank {rank})")
        return replace(answer, rank=rank, ranks=self._broken if answer.step == self.step - 1 else ())

    def evaluate(self) -> float | None:
        """Return the accuracy of rank 0 on the test set, None if the ranks are ended."""
        if self._over:
            return None
        with suppress(CrewStopped):
            return self._crew.ask([0], "evaluate")[0]
        return None

    def close(self) -> None:
        """End the ranks."""
        self._over = True
        self._crew.close()

    def _join(self, answers: list[Any], joined_problem: str) -> Row:
        """Return the row of all ranks."""
        row: Row = answers[0][0]
        losses, accuracies = (np.array([answer[place] for answer in answers]) for place in (1, 2))
        figures: list[RankFigures] = [answer[3] for answer in answers]
        took_part = known_mask(losses)  # one that has run out of batches has no loss
        norms = np.array([each.norm for each in figures])
        self._broken = tuple(np.flatnonzero(~(np.isfinite(norms) & (np.isfinite(losses) | ~took_part))).tolist())
        measured = is_known(figures[0].drift)
        self._drifts = [each.drift for each in figures] if measured else self._drifts
        return replace(
            row,
            loss=float(losses[took_part].mean()),
            accuracy=float(accuracies[took_part].mean()) if is_known(row.accuracy) else row.accuracy,
            joined_problem=joined_problem,
            all_reduces=figures[0].reductions,
            reduced_bytes=figures[0].reduced,
            rank_drift=float(np.max(self._drifts)) if measured else UNKNOWN,
            ranks=np.array(
                [
                    [getattr(each._replace(drift=drift), name) for name in RANK_COLUMNS]
                    for each, drift in zip(figures, self._drifts, strict=True)
                ]
            ),
        )

"""The step of an experiment's plain program, without measurements. It runs on real tensors and on tensors without
memory alike: the data are passed in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from gradstudio.core.experiment import Experiment
from gradstudio.core.knobs import Value
from gradstudio.engine.own_model import trees
from gradstudio.engine.own_model.subject import OwnModel
from gradstudio.engine.subject import Subject
from gradstudio.program import run_until_step
from gradstudio.program.plan import Plan

SEEN = 2  # micro-batches that are computed; all later ones use as much as the second
_PARTS = (
    "layers",
    "models",
    "losses",
    "weights",
    "clipping",
    "update_rules",
    "optimizers",
    "pieces",
    "sharpness_aware",
    "step",
)
# What reads numbers or talks to other processes, and uses no memory of its own.
_LEFT_OUT: dict[str, Value] = {
    "run.steps": 2, "model.init": "default", "model.init_gain": 1.0, "model.initial_bias": 0.0,
    "problem.outlier_every": 0, "problem.nan_every": 0, "problem.skip_batches": 0, "distributed.ranks": 1,
    "run.memory_budget": 0,
}  # fmt: skip


class PlainLoop:
    """Model and optimizer of an experiment as its program creates them. `draw` yields the micro-batches of a step, and
    `tell` is called with its phases."""

    def __init__(
        self,
        knobs: Experiment,
        subject: Subject,
        draw: Callable[[], Iterator[Any]],
        tell: Callable[[str], None] = lambda phase: None,
        device: str = "cpu",
    ) -> None:
        few = {"accumulation.steps": min(knobs.accumulation.steps, SEEN), "run.device": device, **_LEFT_OUT}
        # A GradScaler works in place like a fixed scale, but reads numbers.
        scaling = "none" if knobs.precision.scaling == "none" else "static"
        self._plan = plan = Plan(
            knobs.with_values({**few, "precision.scaling": scaling}), measures=False, tells_phases=True
        )
        self._draw = draw
        task: Any = getattr(subject, "task", None)
        given: dict[str, Any] = {"tell": tell, "device": torch.device(device), "seed": knobs.run.seed}
        given |= {
            "make_batches": lambda: None,
            "drawn_by": lambda model: None,
            "vocabulary": getattr(task, "vocabulary", ""),
        }
        given |= {"class_weights": torch.ones(plan.classes, device=device)}
        if isinstance(subject, OwnModel):
            program = subject.program
            given["build_model"] = lambda **_: program.model()
            given["compute_loss"] = lambda model, batch, **_: program.loss(model, batch)
        self._names = run_until_step(plan, _PARTS, given)
        # Tensors without memory have no norm, and are cloned but not copied.
        self._names["is_spike"] = lambda gradients: False
        self._names["copy"] = SimpleNamespace(deepcopy=lambda whole: trees.map_tensors(whole, Tensor.clone))
        self.model: nn.Module = self._names["model"]
        self.parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        if knobs.mistakes.never_zero_grad:
            self._give_gradients()  # which persist from step to step

    def prepare(self) -> None:
        """Create the state of the optimizer, which normally happens at the first update."""
        self._give_gradients()
        self._names["optimizer"].step()
        if not (self._plan.own or self._plan.ever_keeps_gradients):
            self._names["optimizer"].zero_grad()

    def step(self) -> None:
        """Make one optimizer step."""
        all_at_once = self._plan.climbs or self._plan.shares  # a step goes through its micro-batches twice
        self._names["batches"] = iter([*self._draw()]) if all_at_once else self._draw()
        self._names["one_step"]()

    def gradients(self) -> list[Tensor]:
        return [parameter.grad for parameter in self.parameters if parameter.grad is not None]

    def state(self) -> list[Tensor]:
        """Return the tensors of the optimizer's state."""
        states = self._names["optimizer"].state.values()
        return [value for state in states for value in state.values() if isinstance(value, Tensor)]

    def _give_gradients(self) -> None:
        for parameter in self.parameters:
            parameter.grad = torch.zeros_like(parameter)


def parts(whole: Any, count: int, size: int) -> Iterator[Any]:
    """Yield the micro-batches of one large batch, each in memory of its own; or the large batch itself if there is only
    one."""
    if count == 1:
        yield whole
        return
    for number in range(count):
        place = slice(number * size, (number + 1) * size)
        yield trees.map_tensors(whole, lambda tensor, place=place: tensor[place].clone())

"""The model, data and loss of a studio file, in the form that a trainer needs. Every pass goes through autograd: a
recording would have to know whether the file draws random numbers or reads its numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from gradstudio.core.experiment import Experiment
from gradstudio.core.knobs import KnobError
from gradstudio.core.row import Activation, Layer
from gradstudio.core.sections.task_knobs import Model as ModelKnobs
from gradstudio.core.studio_file import StudioFile
from gradstudio.core.unknown import UNKNOWN
from gradstudio.engine import random_state
from gradstudio.engine.models.initialization import INITIALIZERS
from gradstudio.engine.models.state import gradients_by_backward, preserve_state
from gradstudio.engine.own_model import trees
from gradstudio.engine.own_model.data import OwnBatch, OwnData
from gradstudio.engine.own_model.program import Program
from gradstudio.engine.own_model.structure import Structure
from gradstudio.engine.runtime import out_of_memory
from gradstudio.engine.step import precision
from gradstudio.engine.step.testing import NOT_TESTED, TestSetFigures
from gradstudio.engine.subject import BatchLoss

_INITIALIZED = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.RNNBase)
_NORMS = (
    nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm, nn.InstanceNorm1d, nn.InstanceNorm2d,
    nn.InstanceNorm3d, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm,
)  # fmt: skip


class OwnModel:
    """The parts defined by a studio file."""

    recorded = judged = False

    def __init__(self, file: StudioFile, knobs: Experiment, device: str) -> None:
        """Run the file's text. torch's global generator has the seed of the run."""
        self.program = Program(file, knobs.model_file)
        self.device = device
        self.task = OwnData(self.program, knobs.problem, knobs.run.seed, device)
        self._chance: list[Tensor] = []

    def build(self, knobs: Experiment) -> nn.Module:
        model = self.program.model()
        _initialize(model, knobs.model)
        model.to(self.device).train()
        self._structure = Structure(model)
        self._chance = random_state.states(self.device)
        return model

    def parameters(self, model: nn.Module) -> list[tuple[str, nn.Parameter]]:
        return [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]

    def layers(self, model: nn.Module) -> tuple[Layer, ...]:
        of_kind: dict[int, Literal["norm", "embedding"]] = {
            id(weight): "norm" if isinstance(part, _NORMS) else "embedding"
            for part in model.modules()
            if isinstance(part, (*_NORMS, nn.Embedding, nn.EmbeddingBag))
            for weight in part.parameters()
        }
        return tuple(
            Layer(name, of_kind.get(id(weight)) or _role(name), weight.numel())
            for name, weight in self.parameters(model)
        )

    def compute(self, model: nn.Module, batch: Any, knobs: Experiment) -> BatchLoss:
        (tree,), before = batch, self._structure.places()
        with precision.autocast(knobs.precision, self.device):
            loss = self.program.loss(model, tree).float()
        if changed := self._structure.describe_changes(before):
            raise self.program.error(changed, "compute_loss")
        unknown = loss.detach().new_tensor(math.nan)
        return BatchLoss(loss, lambda: (unknown, torch.zeros_like(unknown)))

    def shares(self, batches: Sequence[Any]) -> Tensor | None:
        return None  # its loss is its own

    def gradients(self, loss: Tensor, parameters: Sequence[nn.Parameter]) -> Sequence[Tensor | None]:
        return gradients_by_backward(loss, parameters)

    def end(self) -> None:
        self.program.leave_torch_as_it_was()

    def check(self, model: nn.Module, knobs: Experiment) -> None:
        with random_state.preserve(self.device):
            random_state.restore(
                self._chance, self.device
            )  # what the file creates at its first call is the same at every start
            batch = self.task.example()
            self.task.check_noise(knobs.problem, batch)
            reason = self._fault(model, batch, knobs)
            if not reason:
                return
            others = [
                dtype
                for dtype in ("bf16", "fp32")
                if not self._fault(model, batch, knobs.with_value("precision.dtype", dtype))
            ]
        if not others:
            name = self.program.file.name
            raise KnobError(reason if reason.startswith(f"{name}, ") else f"{name}: {reason[:200]}")
        raise KnobError(
            f"precision.dtype = {knobs.precision.dtype} is not allowed with {self.program.file.name} on {self.device}, "
            f"where torch cannot do it ({reason[:120]}); allowed: {', '.join(others)}, or another run.device"
        )

    def _fault(self, model: nn.Module, batch: OwnBatch, knobs: Experiment) -> str:
        """Return why a pass fails, in torch's words; "" if it does not. It leaves no trace in the model."""
        trained = [weight for _, weight in self.parameters(model)]
        try:
            with preserve_state(model):
                loss = self.compute(model, batch, knobs).loss
                gradients_by_backward(loss, trained)
        except (RuntimeError, NotImplementedError) as fault:
            if out_of_memory(fault):
                raise
            return str(fault).strip().partition("\n")[0].partition(". ")[0]
        except KnobError as fault:
            if knobs.precision.dtype == "fp32":
                raise
            return str(fault)
        return ""

    def saved_bytes(self, model: nn.Module, knobs: Experiment) -> int:
        return 0

    def activations(self, model: nn.Module, batch: Any, knobs: Experiment) -> tuple[Activation, ...]:
        return ()

    def attention(self, model: nn.Module, batch: Any, knobs: Experiment) -> tuple[float, float]:
        return UNKNOWN, UNKNOWN

    def time_gradient(self, model: nn.Module, batch: Any, knobs: Experiment) -> float:
        return UNKNOWN

    def test(self, model: nn.Module, knobs: Experiment) -> TestSetFigures:
        return NOT_TESTED

    def plain_loss(self, model: nn.Module, batch: Any, knobs: Experiment, place: Callable[[Tensor], Tensor]) -> Tensor:
        with random_state.preserve(self.device):
            return self.program.loss(model, trees.map_tensors(batch.tree, place))

    @contextmanager
    def own_random_state(self) -> Iterator[None]:
        with random_state.preserve(self.device):
            random_state.restore(self._chance, self.device)
            try:
                yield
            finally:
                self._chance = random_state.states(self.device)

    def preserved_random_state(self) -> AbstractContextManager[None]:
        return random_state.preserve(self.device)

    def random_state(self) -> list[Tensor]:
        return list(self._chance)

    def set_random_state(self, states: list[Tensor]) -> None:
        self._chance = list(states)


def _role(name: str) -> Literal["weight", "recurrent", "bias"]:
    own = name.rpartition(".")[2]
    if "bias" in own:
        return "bias"
    return "recurrent" if "weight_hh" in own else "weight"


@torch.no_grad()
def _initialize(model: nn.Module, knobs: ModelKnobs) -> None:
    """Redraw the weights of Linear, Conv and recurrent layers, and set their biases; others stay as they were built. It
    is unknown what follows a layer: a Linear or Conv is assumed to be followed by a relu. The last layer produces the
    outputs, and has no initial_bias."""
    if (knobs.init, knobs.init_gain, knobs.initial_bias) == ("default", 1.0, 0.0):
        return
    layers = [module for module in model.modules() if isinstance(module, _INITIALIZED)]
    for layer in layers:
        for name, parameter in layer.named_parameters(recurse=False):
            if name.startswith("bias"):
                if knobs.init != "default":
                    parameter.zero_()
                if layer is not layers[-1] and not name.startswith("bias_hh"):
                    parameter.add_(knobs.initial_bias)
            elif name == "weight":
                INITIALIZERS[knobs.init](parameter, "relu", knobs.init_gain)
            elif name.startswith(("weight_ih", "weight_hh")):
                INITIALIZERS[knobs.init](parameter, "recurrent", knobs.init_gain)

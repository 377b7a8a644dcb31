"""Where the first NaN or Inf is born, held against faults whose place is known."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import own_models
import pytest
import torch

from gradstudio.core import presets
from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.diagnosis.offered_remedies import with_fitting_remedies
from gradstudio.core.experiment import Experiment
from gradstudio.core.provenance import Provenance, ProvenanceUnknown
from gradstudio.engine import operation_watcher
from gradstudio.engine.operation_watcher import values_of
from gradstudio.engine.provenance_search import explain
from gradstudio.engine.snapshot import Snapshot
from gradstudio.engine.tasks.task import Batch
from gradstudio.engine.trainer import Trainer
from gradstudio.session.running.investigation import sentence

SMALL = {"model.width": 8, "model.depth": 2, "problem.batch_size": 8, "run.device": "cpu"}


def trainer_of(**values: object) -> Trainer:
    return Trainer(Experiment().with_values(SMALL | {name.replace("__", "."): value for name, value in values.items()}))


def poison(trainer: Trainer, name: str, value: float) -> None:
    """Give a weight another value."""
    dict(trainer.model.named_parameters())[name].data.flatten()[0] = value


def test_a_healthy_step_has_none_and_trains_as_without_watching() -> None:
    for values in (
        {},
        {"optimizer__kind": "adam", "accumulation__steps": 3},
        {"precision__dtype": "bf16", "model__norm": "batch"},
    ):
        watched, plain = trainer_of(**values), trainer_of(**values)
        for _ in range(3):
            assert explain(watched) is None
            next(plain.steps())
        assert torch.equal(watched.flat.weights.data, plain.flat.weights.data)
        assert repr(next(watched.steps()).loss) == repr(next(plain.steps()).loss)


@pytest.mark.parametrize("layer", ["hidden.0", "hidden.1", "head"])
def test_forward_an_overflow_is_found_in_its_layer(layer: str) -> None:
    trainer = trainer_of(model__activation="relu")
    for name, parameter in trainer.model.named_parameters():
        if name.startswith(layer):
            parameter.data.fill_(3e38)
    found = explain(trainer)
    assert (found.phase, found.module, found.operation) == ("forward", layer, "aten.addmm.default")
    assert (
        found.layers == (f"{layer}.weight", f"{layer}.bias")
        and found.chain[0].is_birth
        and not any(made.is_birth for made in found.chain[1:])
    )
    assert "largest float32 number" in found.cause or "Inf - Inf, which is NaN" in found.cause


def test_a_value_that_was_not_finite_before_the_step_is_passed_on_and_not_born() -> None:
    trainer = trainer_of()
    poison(trainer, "hidden.1.weight", math.nan)
    found = explain(trainer)
    assert found.module == "hidden.1" and not found.chain[0].is_birth and "was given" in found.cause


@pytest.mark.parametrize(
    ("values", "phase", "operation", "cause"),
    [
        (
            {"loss__kind": "naive_log", "problem__input_scale": 1e4},
            "loss",
            "aten.log.default",
            "the logarithm of 0 is -Inf",
        ),
        (
            {"loss__kind": "naive_exp", "problem__input_scale": 1e4},
            "loss",
            "aten.exp.default",
            "the largest float32 number",
        ),
        ({"loss__kind": "naive_division"}, "loss", "aten.div.Tensor", "0"),
        (
            {"loss__kind": "naive_variance", "problem__input_scale": 1e3},
            "loss",
            "aten.log.default",
            "the logarithm of a negative number",
        ),
    ],
)
def test_in_the_loss_the_operation_and_its_reason_are_named(
    values: dict[str, object], phase: str, operation: str, cause: str
) -> None:
    found = broken(trainer_of(**values))
    assert (found.phase, found.operation) == (phase, operation) and cause in found.cause and found.module == ""


def broken(trainer: Trainer, steps: int = 300) -> Provenance:
    """Train until a step goes non-finite, and have that one explained."""
    for _ in range(steps):
        before = Snapshot.take(trainer)
        row = next(trainer.steps())
        if row.went_nonfinite:
            before.restore(trainer)
            found = explain(trainer)
            assert found is not None and found.step == row.step
            return found
    raise AssertionError("it did not break")


def test_backward_the_derivative_and_its_operation_are_named() -> None:
    found = broken(Trainer(presets.load("root-at-zero").experiment))
    assert (found.phase, found.operation) == ("backward", "aten.div.Tensor")
    assert found.chain[0].of == "SqrtBackward0" and found.cause == "a division by 0 is Inf in the derivative of Sqrt"


def test_fp16_overflows_are_found_with_their_number_format() -> None:
    found = broken(Trainer(presets.load("fp16-overflow").experiment))
    assert found.phase == "backward" and "does not fit into float16, whose largest number is 6.55e4" in found.cause


def test_what_a_scaler_skips_is_no_failure() -> None:
    trainer = trainer_of(precision__dtype="fp16", problem__input_scale=100.0)
    row = next(trainer.steps())
    assert row.skipped and not row.went_nonfinite


def test_an_update_that_overflows_is_told_from_the_passes() -> None:
    trainer = trainer_of(optimizer__lr=1e6, optimizer__weight_decay=1e3, model__activation="tanh")
    dict(trainer.model.named_parameters())["hidden.0.bias"].data.fill_(1e30)  # which tanh makes 1, and the decay 1e39
    found = explain(trainer)
    assert found is not None and (found.phase, found.module, found.operation) == ("update", "", "aten.add_.Tensor")


def test_the_micro_batch_is_told() -> None:
    trainer = trainer_of(accumulation__steps=4)
    draw, poison = trainer.next_batches, torch.full((8, 8, 8), math.inf)

    def third_is_poisoned() -> list[Batch]:
        batches = draw()
        return [*batches[:2], batches[2]._replace(inputs=poison), *batches[3:]]

    trainer.next_batches = third_is_poisoned
    found = explain(trainer)
    assert (found.micro_batch, found.micro_batches) == (2, 4) and not found.chain[0].is_birth


def test_of_a_recurrent_model_the_time_step_and_the_growth_along_it_are_told() -> None:
    trainer = trainer_of(
        model__kind="rnn", model__activation="relu", model__depth=1, problem__task="sequential_digits",
        problem__seq_len=16, problem__input_scale=1.0,
        model__init="orthogonal", model__init_gain=1e4,
    )  # fmt: skip
    found = explain(trainer)
    assert (
        found.module == "rnn" and found.phase == "forward" and found.time_step is not None and 0 < found.time_step < 16
    )
    state = trainer.model.rnn(trainer.task.sample(8))[0]
    assert found.growth_along == "time steps" and len(found.growth) == 16
    finite = [value for _, value in found.growth[: found.time_step] if math.isfinite(value)]
    assert all(later > 10 * earlier for earlier, later in pairwise(finite[1:])) and state.shape[1] == 16


def test_masks_of_a_transformer_are_no_births() -> None:
    trainer = trainer_of(model__kind="transformer", problem__task="characters", problem__seq_len=8)
    assert explain(trainer) is None
    for name, parameter in trainer.model.named_parameters():
        if name.startswith("head"):
            parameter.data.fill_(3e38)
    found = explain(trainer)
    assert found.module == "head"


def test_every_kind_of_model_is_explained() -> None:
    kinds = {
        "mlp": "digits",
        "rnn": "sequential_digits",
        "lstm": "sequential_digits",
        "gru": "sequential_digits",
        "cnn": "digits",
        "transformer": "sequential_digits",
        "gan": "ring",
        "policy": "pole",
    }
    for kind, task in kinds.items():
        trainer = trainer_of(model__kind=kind, problem__task=task, problem__seq_len=8)
        poison(trainer, trainer.layers[0].name, math.nan)
        found = explain(trainer)
        assert found is not None and found.layers and not found.chain[0].is_birth, kind


def test_values_are_told_apart() -> None:
    values = values_of(torch.tensor([math.nan, math.inf, -math.inf, -3.0, 0.0, 2.0]))
    assert (values.low, values.high, values.nan, values.inf, values.zeros, values.largest) == (-3.0, 2.0, 1, 2, 1, 3.0)
    assert values_of(torch.tensor([1, 2])).finite and math.isnan(values_of(torch.tensor([math.nan])).largest)


def test_batches_that_are_passed_over_are_not_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them would be held until the step is over: 24 GB for the most that a run can pass over."""
    trainer = trainer_of(problem__skip_batches=40, accumulation__steps=2)
    watched, draw = [], trainer.task.next_batch
    monkeypatch.setattr(trainer.task, "next_batch", lambda *asked: watched.append(trainer.passed) or draw(*asked))
    monkeypatch.setattr(operation_watcher, "MOST_OPERATIONS", 400)  # of which two batches take 8, eighty 320
    for parameter in trainer.model.parameters():
        parameter.data.fill_(3e38)
    assert explain(trainer).phase == "forward"
    assert watched == list(range(41))


@pytest.mark.parametrize(("limit", "value"), [("MOST_BYTES", 1000), ("MOST_OPERATIONS", 10)])
def test_a_step_that_is_too_large_to_be_watched_is_left(
    monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    trainer = trainer_of()
    before = Snapshot.take(trainer)
    monkeypatch.setattr(operation_watcher, limit, value)
    with pytest.raises(ProvenanceUnknown, match="too large to be made again under watch"):
        explain(trainer)
    before.restore(trainer)
    monkeypatch.undo()
    assert repr(next(trainer.steps()).loss) == repr(next(trainer_of().steps()).loss)


def test_a_search_can_be_stopped() -> None:
    trainer, asked = trainer_of(), iter([False] * 20)
    with pytest.raises(ProvenanceUnknown, match="stopped"):
        explain(trainer, lambda: next(asked, True))
    assert trainer.step == 0


def test_passing_over_can_be_stopped_and_goes_on() -> None:
    trainer, plain, asked = trainer_of(problem__skip_batches=9), trainer_of(problem__skip_batches=9), iter([False] * 4)
    assert not trainer.skip_batches(lambda: next(asked, True)) and trainer.passed == 4
    assert repr(next(trainer.steps()).loss) == repr(next(plain.steps()).loss) and trainer.passed == 9


OWN = """
import math
import numpy as np
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 4)
    def forward(self, x, empty, bias):
        scores = self.out(x)[:, None] * x[:, :, None]
        {forward}
        return scores.sum(2)

def build_model():
    return Net()

def get_batch(batch_size, generator):
    x = torch.randn(batch_size, 4, generator=generator)
    return {{"x": x, "weight": torch.tensor({weight}), "bias": torch.zeros(4).fill_({bias})}}

def compute_loss(model, batch):
    empty = torch.zeros(len(batch["x"]), 4, 4, dtype=torch.bool)
    empty[1] = True  # a row of nothing but padding
    {before}
    return ((model(batch["x"], empty, batch["bias"]) - batch["x"]) ** 2 * batch["weight"]).mean()
"""


@pytest.mark.parametrize(
    ("changed", "phase", "operation", "cause"),
    [
        ({"weight": "math.inf"}, "data", "mul", "the batch holds 1 value that is not finite"),
        ({"bias": "math.nan", "forward": "scores = scores + bias"}, "data", "add", "the batch holds 4 values that are not finite"),
        ({"before": "torch.log(batch['bias'] - 1).sum() * batch['x']; batch['x'] = batch['x'] + torch.log(batch['bias'] - 1)"},
         "loss", "log", "the logarithm of a negative number"),
        ({"forward": "scores = scores.masked_fill(empty, -math.inf).softmax(-1)"}, "forward", "_softmax", "it was given 16 Inf"),
        ({"forward": "scores = (scores + torch.where(empty, torch.tensor(-math.inf), 0)).softmax(-1)"},
         "forward", "_softmax", "it was given 16 Inf"),
        ({"forward": "mask = torch.zeros(scores.shape); mask[empty] = -math.inf; scores = (scores + mask).softmax(-1)"},
         "forward", "_softmax", "it was given 16 Inf"),
        ({"forward": "scores = (scores * 1000).exp().masked_fill(empty, -math.inf).softmax(-1)"}, "forward", "exp", "is beyond"),
        ({"forward": "scores = scores + torch.tensor(math.nan)"}, "forward", "add", "it was given 1 value that is not finite"),
        ({"forward": "scores = scores + torch.from_numpy(np.full(4, np.nan, np.float32))"},
         "forward", "add", "it was given 4 values that are not finite"),
        ({"forward": "scores = scores + torch.full((4,), math.nan)"}, "forward", "full", "it was given the number NaN"),
        ({"forward": "with torch.no_grad(): self.out.weight[0, 0] = math.inf"}, "forward", "copy_", "it was given 1 value"),
    ],
)  # fmt: skip
def test_what_a_model_of_ones_own_made_did_not_come_with_the_data(
    changed: dict[str, str], phase: str, operation: str, cause: str, tmp_path: Path
) -> None:
    plain = {"forward": "pass", "before": "pass", "weight": "1.0", "bias": "0.0"}
    trainer = Trainer(own_models.preset(tmp_path, OWN.format(**plain | changed)).experiment)
    found = explain(trainer)
    assert found is not None
    assert (found.phase, found.short_name) == (phase, operation) and cause in found.cause
    assert found.is_from_input == (phase == "data")
    assert ("was born" in sentence(found)) == (operation in ("log", "exp", "_softmax", "full"))
    broke = Finding("nonfinite_loss", "critical", "", 3, 3, (), "", "", ("clipping.kind=norm",))
    offered = with_fitting_remedies(broke, trainer.experiment, found).remedies
    assert ("clipping.kind=norm" in offered) == (operation == "exp")

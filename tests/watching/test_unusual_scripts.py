"""Scripts of kinds that are rare, and still somebody's: they do what they do unwatched, and are seen rightly."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import ChainedScheduler, StepLR
from watching.conftest import gradient_norm, runs_of, small_net, square_loss

from gradstudio.core.unknown import is_known
from gradstudio.session.record.run import Run
from gradstudio.watching.hooks import guard
from gradstudio.watching.hooks.trees import tensors_of
from gradstudio.watching.training_watch import TrainingWatch

Watch = Callable[..., TrainingWatch]


def column(run: Run, name: str) -> list[float]:
    return run.history.column(name).tolist()


@pytest.fixture(autouse=True)
def faults_are_told(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """No test of these may end with a watch that was taken off."""
    told: list[str] = []
    for place in ("watcher", "recording.reports"):
        monkeypatch.setattr(f"gradstudio.watching.{place}.say", told.append)
    yield told
    assert not [line for line in told if "watching ended" in line], told


def trained(
    backward: Callable[[list[Tensor]], object], watch: Watch | None
) -> tuple[list[float], TrainingWatch | None]:
    """The losses of five steps, each with two losses."""
    torch.manual_seed(0)
    model = small_net()
    optimizer = SGD(model.parameters(), lr=0.1)
    one, losses = watch(model, optimizer) if watch else None, []
    for _ in range(5):
        optimizer.zero_grad()
        both = [square_loss(model), square_loss(model)]
        backward(both)
        optimizer.step()
        losses.append(float(both[0].detach() + both[1].detach()))
    return losses, one


def of_scaled(losses: list[Tensor]) -> None:
    for scaled in SCALER.scale(each for each in losses):  # type: ignore[arg-type]
        scaled.backward()


def of_list(losses: list[Tensor]) -> None:
    for scaled in SCALER.scale(losses):
        scaled.backward()


def of_gradients(losses: list[Tensor]) -> None:
    torch.autograd.backward(losses[0], (each for each in [torch.ones(())]), retain_graph=True)  # type: ignore[arg-type]
    torch.autograd.backward(losses[1], grad_tensors=iter([None]))  # type: ignore[arg-type]


def of_generator(losses: list[Tensor]) -> None:
    torch.autograd.backward(each for each in losses)  # type: ignore[arg-type]


SCALER = torch.amp.GradScaler("cpu", init_scale=8.0)


@pytest.mark.parametrize("scale", [1.0, 2.0**16])
def test_a_script_may_have_numpy_raise_at_what_is_too_small_or_too_large(scale: float, watch: Watch) -> None:
    torch.manual_seed(0)
    model = small_net()
    optimizer, scaler = SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu", init_scale=scale)
    one = watch(model, optimizer, on_nonfinite="ignore")
    with np.errstate(all="raise"):
        for factor in (1.0, 1e-30, 1e-41, 0.0, 1e30, math.inf):
            optimizer.zero_grad()
            scaler.scale(square_loss(model) * factor).backward()
            scaler.step(optimizer)
            scaler.update()
        one.close()
    [run] = runs_of(one)
    assert len(run.history) == 6 and run.first_nonfinite_step is not None


@pytest.mark.parametrize("backward", [of_generator, of_gradients, of_scaled, of_list])
def test_what_can_be_gone_through_once_is_left_to_the_script(watch: Watch, backward: Callable[[list[Tensor]], object]):
    plain, _ = trained(backward, None)
    losses, one = trained(backward, watch)
    assert losses == plain and one is not None
    (run,) = runs_of(one)
    assert column(run, "loss") == pytest.approx(losses)


@pytest.mark.skipif(torch.__version__.startswith("2.4."), reason="torch 2.4 begins no backward pass from an edge")
def test_an_edge_of_the_graph_has_no_loss_that_is_known(watch: Watch) -> None:
    model = small_net()
    optimizer = SGD(model.parameters(), lr=0.1)
    one = watch(model, optimizer)
    for _ in range(3):
        optimizer.zero_grad()
        edge = torch.autograd.graph.get_gradient_edge(square_loss(model))
        torch.autograd.backward(edge, torch.ones(()))
        optimizer.step()
    (run,) = runs_of(one)
    assert len(run.history) == 3 and not any(map(is_known, column(run, "loss")))
    assert all(each > 0 for each in column(run, "grad_norm"))


class OfModel(Optimizer):
    """Its step takes the model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model.parameters(), {"lr": 0.1})

    @torch.no_grad()
    def step(self, model: nn.Module) -> None:  # type: ignore[override]
        for _, parameter in model.named_parameters():
            assert parameter.grad is not None
            parameter -= 0.1 * parameter.grad


def test_a_step_may_take_a_model(watch: Watch) -> None:
    model = small_net()
    optimizer = OfModel(model)
    one, norms = watch(model, optimizer), []
    for _ in range(3):
        optimizer.zero_grad()
        square_loss(model).backward()
        norms.append(gradient_norm(model))
        optimizer.step(model)
    (run,) = runs_of(one)
    assert column(run, "clipped_norm") == pytest.approx(norms, rel=1e-6)


@dataclass(eq=False)
class Node:
    value: Tensor
    parent: Node | None = None
    children: list[Node] = field(default_factory=list)


def test_a_tree_whose_nodes_know_their_parents_is_gone_through_once() -> None:
    root = Node(torch.zeros(1))
    root.children = [Node(torch.ones(1), root), Node(torch.full((1,), 2.0), root)]
    assert [float(each) for each in tensors_of((root, [root.value]))] == [0, 1, 2, 0]
    deep: list[object] = [torch.zeros(1)]
    for _ in range(5000):
        deep = [deep]
    assert len(tensors_of(deep)) == 1


def test_loss_code_that_is_too_long_to_search_stops_nobody(watch: Watch) -> None:
    model = small_net()
    optimizer = SGD(model.parameters(), lr=0.01)
    one = watch(model, optimizer)
    for step in range(4):
        optimizer.zero_grad()
        loss = square_loss(model)
        for _ in range(11_000 if step == 1 else 0):
            loss = loss + 0.0
        if step == 1:
            loss = loss * torch.nan
        if not torch.isfinite(loss):
            continue
        loss.backward()
        optimizer.step()
    (run,) = runs_of(one)
    assert len(run.history) == 3


def test_a_parameter_that_a_model_gives_keeps_no_hook(watch: Watch) -> None:
    class Policy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean, self.deviation = nn.Linear(3, 2), nn.Parameter(torch.zeros(2))

        def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
            return self.mean(inputs), self.deviation

    model = Policy()
    optimizer = SGD(model.parameters(), lr=0.1)
    watch(model, optimizer)
    for _ in range(4):
        optimizer.zero_grad()
        mean, deviation = model(torch.randn(4, 3))
        (mean**2 * deviation.exp()).mean().backward()
        optimizer.step()
    assert not model.deviation._backward_hooks


def test_an_optimizer_that_does_not_step_holds_no_batch(watch: Watch) -> None:
    model = small_net()
    head, whole = SGD(model[2].parameters(), lr=0.1), SGD(model.parameters(), lr=0.1)
    watch(model, head, record=0)
    watch(model, whole)
    batches = []
    for _ in range(5):
        head.zero_grad()
        batch = torch.randn(4, 6)
        batches.append(weakref.ref(batch))
        (model(batch) ** 2).mean().backward()
        head.step()
    del batch
    gc.collect()
    assert sum(each() is not None for each in batches) <= 1


@pytest.mark.wants("torch.utils._python_dispatch", "OpOverload._schema")
def test_the_place_of_a_nan_counts_the_micro_batches_that_were_finite(watch: Watch) -> None:
    class Rooted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(6, 1)

        def forward(self, inputs: Tensor) -> Tensor:
            return torch.sqrt(self.linear(inputs) ** 2 * inputs[:, :1] ** 2)

    model = Rooted()
    optimizer = SGD(model.parameters(), lr=0.1)
    one = watch(model, optimizer)
    for place in range(4):
        inputs = torch.rand(4, 6) + 1
        if place == 2:
            inputs[0, 0] = 0
        model(inputs).mean().backward()
    optimizer.step()
    (run,) = runs_of(one)
    assert run.provenance is not None
    assert (run.provenance.micro_batch, run.provenance.micro_batches) == (2, 4)


@pytest.mark.wants("torch.nn.utils.clip_grad")
@pytest.mark.parametrize("limit", [math.inf, 0.25])
def test_gradients_made_of_thrown_away_ones_are_measured_as_they_are(watch: Watch, limit: float) -> None:
    model = small_net()
    optimizer = SGD(model.parameters(), lr=0.1)
    one, norms, clipped = watch(model, optimizer), [], []
    for _ in range(3):
        sums = [torch.zeros_like(each) for each in model.parameters()]
        for _ in range(4):
            optimizer.zero_grad()
            square_loss(model).backward()
            for total, each in zip(sums, model.parameters(), strict=True):
                assert each.grad is not None
                total += each.grad / 4
        for total, each in zip(sums, model.parameters(), strict=True):
            each.grad = total
        norms.append(gradient_norm(model))
        if limit < math.inf:
            nn.utils.clip_grad_norm_(model.parameters(), limit)
        clipped.append(gradient_norm(model))
        optimizer.step()
    (run,) = runs_of(one)
    assert column(run, "grad_norm") == pytest.approx(norms, rel=1e-6)
    assert column(run, "clipped_norm") == pytest.approx(clipped, rel=1e-6)
    assert not any(map(is_known, column(run, "loss")))


def test_no_rate_chained_schedulers_and_lazy_layers_are_no_trouble(watch: Watch) -> None:
    model, never = small_net(), nn.LazyLinear(3)
    optimizer = SGD([*model.parameters(), *never.parameters()], lr=0.1)
    schedule = ChainedScheduler([StepLR(optimizer, 1)])
    one = watch(model, optimizer)
    for step in range(4):
        optimizer.zero_grad()
        square_loss(model).backward()
        optimizer.step()
        if step < 2:
            schedule.step()
        else:
            optimizer.param_groups[0]["lr"] = torch.tensor(0.5)
    (run, *_) = runs_of(one)
    assert column(run, "lr") == pytest.approx([0.1, 0.01, 0.001, 0.5])


def test_an_optimizer_that_finds_its_own_rate_has_none_that_is_known(watch: Watch) -> None:
    class Own(SGD):
        @torch.no_grad()
        def step(self, closure: object = None) -> None:  # type: ignore[override]
            for parameter in self.param_groups[0]["params"]:
                parameter -= 0.1 * parameter.grad

    model = small_net()
    optimizer = Own(model.parameters(), lr=0.1)
    optimizer.param_groups[0] |= {"lr": None, "betas": None}
    one = watch(model, optimizer)
    square_loss(model).backward()
    optimizer.step()
    (run,) = runs_of(one)
    assert len(run.history) == 1 and not is_known(column(run, "lr")[0])


@pytest.mark.parametrize(("second", "told"), [(0.1, "0.001 to 0.1 in 2 groups of parameters"), (0.001, None)])
def test_groups_with_rates_of_their_own_are_said_to_be(second: float, told: str | None, watch: Watch) -> None:
    model = small_net()
    head, *others = reversed(list(model.parameters()))
    optimizer = SGD([{"params": others, "lr": 0.001}, {"params": [head], "lr": second}])
    one = watch(model, optimizer)
    square_loss(model).backward()
    optimizer.step()
    (run,) = runs_of(one)
    found = dict(run.watched.facts if run.watched else ()).get("learning rates")
    assert column(run, "lr") == [0.001] and (found and found.split(";")[0]) == told


def test_nothing_is_called_in_a_process_that_was_forked_off(monkeypatch: pytest.MonkeyPatch) -> None:
    called = guard.guarded(pytest.fail)(lambda: "here")
    assert called() == "here"
    monkeypatch.setattr(guard, "_forks", guard._forks + 1)
    assert called() is None


def test_whether_anything_is_compiled_is_not_forgotten_with_what_was(watch: Watch, monkeypatch) -> None:
    """Else torch's compiler reads the watch itself, and warns of what it finds."""
    monkeypatch.setattr(guard, "_compiles", False)
    model = small_net()
    watch(model, SGD(model.parameters(), lr=0.1))
    torch._dynamo.reset()
    compiled = torch.compile(square_loss, backend="eager")
    torch._dynamo.reset()
    torch.compiler.disable(square_loss)
    looked = []
    monkeypatch.setattr(guard, "_compiler", guard._compiler._replace(reads=lambda: looked.append(1) or False))
    compiled(model).backward()
    assert looked


@pytest.mark.wants("torch._C._functorch.peek_interpreter_stack")
def test_a_model_that_torch_func_transforms_is_no_pass(watch: Watch, faults_are_told: list[str]) -> None:
    torch.manual_seed(0)
    model = small_net()
    optimizer, losses = SGD(model.parameters(), lr=0.1), []
    one = watch(model, optimizer)

    def loss_of_one(weights: dict[str, Tensor], x: Tensor) -> Tensor:
        return torch.func.functional_call(model, weights, (x[None],)).square().sum()

    of_each = torch.func.vmap(torch.func.grad(loss_of_one), in_dims=(None, 0))
    for step in range(4):
        x = torch.randn(8, 6)
        loss = model(x).square().mean() * (math.nan if step == 3 else 1.0)
        of_each({name: weight.detach() for name, weight in model.named_parameters()}, x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    (run,) = runs_of(one)
    assert column(run, "loss") == pytest.approx(losses, rel=1e-6, nan_ok=True)
    assert run.provenance is not None and run.provenance.phase == "loss", faults_are_told


@pytest.mark.wants("torch.nn.utils.clip_grad")
def test_a_nan_that_the_script_makes_of_finite_gradients_is_its_own_and_skips_no_batch(
    watch: Watch, faults_are_told: list[str]
) -> None:
    model = small_net()
    optimizer, norms = SGD(model.parameters(), lr=0.1), []
    one = watch(model, optimizer)
    for step in range(5):
        sums = [torch.zeros_like(each) for each in model.parameters()]
        for _ in range(2):
            optimizer.zero_grad()
            square_loss(model).backward()
            for total, each in zip(sums, model.parameters(), strict=True):
                assert each.grad is not None
                total += each.grad / (0.0 if step == 2 else 2.0)
        for total, each in zip(sums, model.parameters(), strict=True):
            each.grad = total - total * (step == 2)
        norms.append(gradient_norm(model))
        optimizer.step()
    (run,) = runs_of(one)
    assert column(run, "grad_norm") == pytest.approx(norms, rel=1e-6, nan_ok=True) and math.isnan(norms[3])
    assert any("the backward passes gave finite gradients" in line for line in faults_are_told)
    assert not [line for line in faults_are_told if "skipped" in line or "anomaly" in line]
    assert not [event for event in run.events if "skipped" in event.text]

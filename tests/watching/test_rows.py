"""The rows of a watched training, against what torch alone says in the same script."""

from __future__ import annotations

import copy
import io
import math
import pickle
import threading
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from waiting import PATIENCE
from watching.conftest import columns, gradient_norm, near, norm, runs_of, small_net, square_loss

from gradstudio.core.history import LAYER_METRICS
from gradstudio.core.row import Row
from gradstudio.core.unknown import is_known
from gradstudio.engine.torch_internals import clipping_hooks
from gradstudio.session.record.ranked_findings import ranked_findings
from gradstudio.session.running.investigation import sentence
from gradstudio.watching.births import observed_passes as births
from gradstudio.watching.measuring.parameters import NOT_MEASURED, Gradient
from gradstudio.watching.recording.run_facts import Script
from gradstudio.watching.steps.measured_step import MeasuredStep
from gradstudio.watching.steps.script_facts import settings_of
from gradstudio.watching.steps.watch_options import Options
from gradstudio.watching.training_watch import TrainingWatch
from gradstudio.watching.watcher import Watcher

Watch = Callable[..., TrainingWatch]


@pytest.mark.wants("torch.nn.utils.clip_grad")
def test_loss_norms_rate_and_update_of_every_step(watch: Watch) -> None:
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    one = watch(model, optimizer)
    losses, norms, clipped, rates, moves = [], [], [], [], []
    for _ in range(5):
        optimizer.zero_grad()
        loss = square_loss(model)
        loss.backward()
        losses.append(loss.item())
        norms.append(gradient_norm(model))
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        clipped.append(gradient_norm(model))
        rates.append(optimizer.param_groups[0]["lr"])
        before = [parameter.detach().clone() for parameter in model.parameters()]
        optimizer.step()
        schedule.step()
        pairs = zip(model.parameters(), before, strict=True)
        moves.append(norm(new.detach() - old for new, old in pairs) / norm(before))
    assert columns(one, "loss", "lr") == [losses, rates]
    assert columns(one, "grad_norm", "clipped_norm") == [near(norms), near(clipped)]
    assert columns(one, "update_ratio") == [pytest.approx(moves, rel=1e-4)]
    (run,) = runs_of(one)
    assert run.history.settings[0][1][:4] == ("norm", 1.0, "fp32", "sgd")
    assert [layer.name for layer in run.history.layers] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert [layer.role for layer in run.history.layers] == ["weight", "bias", "weight", "bias"]
    assert one.run == run.id and not any(is_known(value) for value in run.history.column("accuracy"))


@pytest.mark.parametrize("to_none", [True, False])
def test_a_backward_pass_whose_gradient_is_0_belongs_to_its_step(watch: Watch, to_none: bool) -> None:
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    one = watch(model, optimizer)
    losses, norms = [], []
    for step in range(4):
        optimizer.zero_grad(set_to_none=to_none)
        flat = 0 * model(torch.randn(4, 6)).sum() + 3  # as a hinge that every example is beyond
        parts = [flat, square_loss(model)] if step % 2 else [square_loss(model), flat]
        for part in parts:
            part.backward()
        losses.append(sum(part.item() for part in parts))
        norms.append(gradient_norm(model))
        optimizer.step()
    assert columns(one, "loss", "grad_norm") == [near(losses), near(norms)]
    (run,) = runs_of(one)
    assert not [event for event in run.events if event.kind == "nan_batch"]


@pytest.mark.parametrize(("record", "recorded"), [(0, 0), (8, 3)])
def test_a_script_that_goes_on_behind_a_nan_is_replayed_once_and_sees_its_warnings_once(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, record: int, recorded: int
) -> None:
    """For a crash file each recorded pass is made once more."""
    passes: list[int] = []

    class Counting(nn.Sequential):
        def forward(self, inputs: Tensor) -> Tensor:
            passes.append(0)
            warnings.warn("of the script", stacklevel=1)
            return super().forward(inputs)

    model = Counting(*small_net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        shown: list[Any] = []
        monkeypatch.setattr(warnings, "showwarning", lambda *given, **_: shown.append(given))
        one = watch(model, optimizer, record=record)
        for step in range(6):
            optimizer.zero_grad()
            (model(torch.randn(4, 6)).square().mean() * (math.nan if step == 2 else 1)).backward()
            optimizer.step()
    (run,) = runs_of(one)
    assert run.first_nonfinite_step == 2 and len(shown) == 1
    assert 6 <= len(passes) <= 7 + recorded


@pytest.mark.wants("torch.nn.utils.clip_grad")
@pytest.mark.parametrize("to_none", [True, False])
def test_accumulation_and_clipping_by_value(watch: Watch, to_none: bool) -> None:
    model = small_net()
    optimizer = torch.optim.Adam(model.parameters())
    one = watch(model, optimizer)
    losses, norms, clipped = [], [], []
    for _ in range(3):
        parts = [square_loss(model) / 3 for _ in range(3)]
        for part in parts:
            part.backward()
        losses.append(sum(part.item() for part in parts))
        norms.append(gradient_norm(model))
        nn.utils.clip_grad_value_(model.parameters(), 0.05)
        clipped.append(gradient_norm(model))
        optimizer.step()
        optimizer.zero_grad(set_to_none=to_none)
    found = columns(one, "loss", "grad_norm", "clipped_norm")
    assert found == [near(losses), near(norms), near(clipped)]
    (run,) = runs_of(one)
    assert run.history.settings[0][1][:2] == ("value", 0.05)
    assert run.watched is not None and dict(run.watched.facts)["accumulation"] == "3 backward passes a step"
    assert run.experiment["accumulation.steps"] == 3


@pytest.mark.wants("torch.nn.utils.clip_grad")
def test_a_clip_of_all_parameters_is_heard_by_every_optimizer_that_has_some(watch: Watch) -> None:
    model = small_net()
    matrices, others = ([each for each in model.parameters() if (each.ndim == 2) == two] for two in (True, False))
    optimizers = torch.optim.SGD(matrices, 0.05), torch.optim.AdamW(others)
    watched = [watch(model, each) for each in optimizers]
    for _ in range(3):
        model.zero_grad()
        (100 * square_loss(model)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for each in optimizers:
            each.step()
    for one in watched:
        (run,) = runs_of(one)
        assert [(each.clipping, each.limit) for _, each in run.history.settings] == [("norm", 1.0)]
        assert max(run.history.column("clip_coef")) < 1


def test_clipping_by_hand_that_torch_does_not_see(watch: Watch) -> None:
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    one = watch(model, optimizer)
    norms, clipped = [], []
    for _ in range(3):
        optimizer.zero_grad()
        square_loss(model).backward()
        norms.append(gradient_norm(model))
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.grad.data.mul_(0.25)
        clipped.append(gradient_norm(model))
        optimizer.step()
    assert columns(one, "grad_norm", "clipped_norm") == [near(norms), near(clipped)]


def clip_by_norm(model: nn.Sequential) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), 0.25)


def clip_by_value(model: nn.Sequential) -> None:
    nn.utils.clip_grad_value_(model.parameters(), 0.05)


def clip_layer_by_layer(model: nn.Sequential) -> None:
    for layer in (model[0], model[2]):
        nn.utils.clip_grad_norm_(layer.parameters(), 0.25)


@pytest.mark.wants("torch.nn.utils.clip_grad")
@pytest.mark.parametrize("clip", [clip_by_norm, clip_by_value, clip_layer_by_layer])
def test_gradients_that_the_script_puts_there_are_measured_before_they_are_clipped(
    watch: Watch, clip: Callable[[nn.Sequential], None]
) -> None:
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    one = watch(model, optimizer)
    norms, clipped = [], []
    for _ in range(3):
        found = torch.autograd.grad(100 * square_loss(model), list(model.parameters()))
        for parameter, gradient in zip(model.parameters(), found, strict=True):
            parameter.grad = gradient
        norms.append(gradient_norm(model))
        clip(model)
        clipped.append(gradient_norm(model))
        optimizer.step()
    assert columns(one, "grad_norm", "clipped_norm") == [near(norms), near(clipped)]


@pytest.mark.parametrize("by_hand", [True, False])
def test_what_a_clip_may_have_changed_is_unknown_where_torch_lets_none_be_heard(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, by_hand: bool
) -> None:
    """Of an update by hand that is the norm after the clip, of gradients that the script puts there the one before."""
    monkeypatch.setattr(clipping_hooks.CLIPPING, "_found", None)
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    one, before, after = watch(model) if by_hand else watch(model, optimizer), [], []
    for _ in range(3):
        model.zero_grad()
        loss = square_loss(model)
        if by_hand:
            loss.backward()
        else:
            for parameter, gradient in zip(
                model.parameters(), torch.autograd.grad(loss, [*model.parameters()]), strict=True
            ):
                parameter.grad = gradient
        before.append(gradient_norm(model))
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        after.append(gradient_norm(model))
        if by_hand:
            for parameter in model.parameters():
                parameter.data -= 0.1 * parameter.grad
        else:
            optimizer.step()
    one.close()
    found, clipped = columns(one, "grad_norm", "clipped_norm")
    known, wanted, unknown = (found, before, clipped) if by_hand else (clipped, after, found)
    assert known == near(wanted) and not any(map(is_known, unknown))


@pytest.mark.wants("torch.nn.utils.clip_grad")
def test_what_was_before_a_clip_is_unknown_where_such_gradients_have_changed_since(watch: Watch) -> None:
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    one = watch(model, optimizer)
    clipped = []
    for _ in range(3):
        found = torch.autograd.grad(square_loss(model), list(model.parameters()))
        for parameter, gradient in zip(model.parameters(), found, strict=True):
            parameter.grad = gradient
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        for gradient in found:
            gradient += 0.01
        clipped.append(gradient_norm(model))
        optimizer.step()
    assert columns(one, "clipped_norm") == [near(clipped)]
    assert not any(is_known(value) for name in ("grad_norm", "clip_coef") for value in columns(one, name)[0])


def test_how_long_rmsprop_remembers_is_its_alpha() -> None:
    net = small_net()
    read = settings_of(torch.optim.RMSprop(net.parameters(), alpha=0.9), ("none", 0.0), None, [*net.parameters()])
    assert (read.optimizer, read.beta2) == ("rmsprop", 0.9)


class Decaying(torch.optim.SGD):
    """Lowers its learning rate at the end of each step."""

    def step(self, closure: Any = None) -> None:
        super().step(closure)
        for group in self.param_groups:
            group["lr"] /= 2


def scheduled(model: nn.Module) -> torch.optim.Optimizer:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    optimizer.register_step_post_hook(lambda *_: schedule.step())
    return optimizer


def warmed_up(model: nn.Module) -> torch.optim.Optimizer:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)

    def lower(_optimizer: torch.optim.Optimizer, _arguments: Any, _named: Any) -> None:
        optimizer.param_groups[0]["lr"] /= 2

    optimizer.register_step_pre_hook(lower)
    return optimizer


@pytest.mark.parametrize("make", [lambda model: Decaying(model.parameters(), lr=0.1), scheduled, warmed_up])
def test_the_rate_of_a_row_is_the_one_that_the_step_was_made_with(
    watch: Watch, make: Callable[[nn.Module], torch.optim.Optimizer]
) -> None:
    model = small_net()
    optimizer = make(model)
    one = watch(model, optimizer)
    for _ in range(3):
        optimizer.zero_grad()
        square_loss(model).backward()
        optimizer.step()
    assert columns(one, "lr") == [near([0.1, 0.05, 0.025])]


def test_a_step_within_the_step_of_a_class_that_builds_on_another_is_one(watch: Watch) -> None:
    torch.optim.SGD(small_net().parameters())  # from now on torch calls hooks for the step of this class too
    model = small_net()
    optimizer = Decaying(model.parameters(), lr=0.1)
    one = watch(model, optimizer)
    losses, norms, clipped = [], [], []
    for _ in range(3):
        optimizer.zero_grad()
        loss = square_loss(model)
        loss.backward()
        losses.append(loss.item())
        norms.append(gradient_norm(model))
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        clipped.append(gradient_norm(model))
        optimizer.step()
    assert columns(one, "loss", "grad_norm", "clipped_norm") == [near(losses), near(norms), near(clipped)]


@pytest.mark.wants("torch.nn.utils.clip_grad")
def test_what_an_optimizer_calls_before_its_steps_is_part_of_the_step(watch: Watch) -> None:
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    one = watch(model, optimizer)
    norms, clipped, given = [], [], []

    def clip(_optimizer: torch.optim.Optimizer, _arguments: Any, _named: Any) -> None:
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        clipped.append(gradient_norm(model))

    def go(_optimizer: torch.optim.Optimizer, arguments: Any, named: Any) -> Any:
        given.append((arguments, named))
        if len(given) == 2:
            handle.remove()
        return arguments, {"closure": None}

    optimizer.register_step_pre_hook(clip)
    handle = optimizer.register_step_pre_hook(go)
    before = list(optimizer._optimizer_step_pre_hooks.items())
    for step in range(4):
        optimizer.zero_grad()
        (100 * square_loss(model)).backward()
        norms.append(gradient_norm(model))
        optimizer.step()
        assert list(optimizer._optimizer_step_pre_hooks.items()) == before[: 1 if step else 2]
    assert given == [((optimizer,), {})] * 2
    assert columns(one, "grad_norm", "clipped_norm") == [near(norms), near(clipped)]
    (run,) = runs_of(one)
    assert [each.clipping for _, each in run.history.settings] == ["norm"]


def test_a_hook_before_a_step_that_raises_leaves_the_next_steps_as_they_are(watch: Watch) -> None:
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    one = watch(model, optimizer)
    calls: list[int] = []

    def fail_once(*_: Any) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("of the script")

    def halve(*_: Any) -> None:
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.grad /= 2

    optimizer.register_step_pre_hook(fail_once)
    optimizer.register_step_pre_hook(halve)
    norms = []
    for step in range(4):
        optimizer.zero_grad()
        square_loss(model).backward()
        if step == 1:
            with pytest.raises(RuntimeError, match="of the script"):
                optimizer.step()
            continue
        norms.append(gradient_norm(model))
        optimizer.step()
    assert columns(one, "grad_norm", "clipped_norm") == [near(norms), near([norm / 2 for norm in norms])]
    assert optimizer._optimizer_step_pre_hooks[max(optimizer._optimizer_step_pre_hooks)] is halve


def test_a_closure_counts_as_its_first_evaluation(watch: Watch) -> None:
    model = small_net()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
    one = watch(model, optimizer)
    first: list[tuple[float, float]] = []
    inputs = torch.randn(16, 6)
    for _ in range(3):
        seen = []

        def closure(seen: list[Any] = seen) -> Any:
            optimizer.zero_grad()
            loss = (model(inputs) ** 2).mean()
            loss.backward()
            seen.append((loss.item(), gradient_norm(model)))
            return loss

        optimizer.step(closure)
        assert len(seen) > 1
        first.append(seen[0])
    assert columns(one, "loss", "grad_norm") == [near([a for a, _ in first]), near([b for _, b in first])]


def test_two_models_that_train_each_other_are_two_runs(watch: Watch) -> None:
    maker, judge = nn.Linear(4, 6), small_net(1)
    makes, judges = torch.optim.Adam(maker.parameters()), torch.optim.Adam(judge.parameters())
    one, other = watch(maker, makes), watch(judge, judges)
    made, judged, norms = [], [], []
    for _ in range(3):
        judges.zero_grad()
        real = judge(torch.randn(8, 6)).mean()
        real.backward()
        noise = torch.randn(8, 4)
        fake = -judge(maker(noise).detach()).mean()
        fake.backward()
        judged.append(real.item() + fake.item())
        norms.append(gradient_norm(judge))
        judges.step()
        makes.zero_grad()
        loss = judge(maker(noise)).mean()
        loss.backward()  # also through the judge, whose gradients are thrown away
        made.append(loss.item())
        makes.step()
    assert columns(one, "loss") == [near(made)]
    assert columns(other, "loss", "grad_norm") == [near(judged), near(norms)]


@pytest.mark.parametrize("unscales", [True, False])
def test_a_scaler_and_its_skips(watch: Watch, unscales: bool) -> None:
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    one = watch(model, optimizer, scaler=scaler)
    losses, scales, norms, stayed = [], [], [], []
    for step in range(4):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = square_loss(model) * (1e37 if step == 2 else 1)
        scales.append(scaler.get_scale())
        scaler.scale(loss).backward()
        losses.append(loss.item())
        norms.append(gradient_norm(model) / scales[-1])
        if unscales:
            scaler.unscale_(optimizer)
        before = model[0].weight.detach().clone()
        scaler.step(optimizer)
        scaler.update()
        stayed.append(float(torch.equal(before, model[0].weight)))
    assert stayed == [0, 0, 1, 0] and scales[3] < scales[2]
    assert columns(one, "scale", "skipped", "loss") == [scales, stayed, near(losses)]
    (found,) = columns(one, "grad_norm")
    assert [found[step] for step in (0, 1, 3)] == near([norms[step] for step in (0, 1, 3)])
    assert not math.isfinite(found[2])
    (run,) = runs_of(one)
    assert run.first_nonfinite_step is None and run.history.settings[0][1].dtype == "bf16"
    assert columns(one, "clip_coef")[0][:2] == [1, 1]


def test_updates_by_hand_are_steps_without_a_rate(watch: Watch) -> None:
    model = small_net()
    one = watch(model)
    losses, norms = [], []
    for _ in range(4):
        loss = square_loss(model)
        loss.backward()
        losses.append(loss.item())
        norms.append(gradient_norm(model))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
                parameter.grad = None
    one.close()
    assert columns(one, "loss", "grad_norm") == [near(losses), near(norms)]
    assert not any(is_known(rate) for rate in columns(one, "lr")[0])


@pytest.mark.wants("torch.nn.utils.clip_grad")
@pytest.mark.parametrize("kind", ["norm", "value"])
def test_what_clipping_leaves_of_an_update_by_hand(watch: Watch, kind: str) -> None:
    """Nothing is heard between clipping by value and the update, so what was left then is unknown."""
    model = small_net()
    one = watch(model)
    norms, clipped = [], []
    for _ in range(3):
        model.zero_grad()
        square_loss(model).backward()
        norms.append(gradient_norm(model))
        if kind == "norm":
            nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        else:
            nn.utils.clip_grad_value_(model.parameters(), 0.25)
        clipped.append(gradient_norm(model))
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.data.add_(parameter.grad, alpha=-0.1)
    one.close()
    assert columns(one, "grad_norm") == [near(norms)]
    if kind == "norm":
        assert columns(one, "clipped_norm") == [near(clipped)]
    else:
        assert not any(is_known(value) for name in ("clipped_norm", "clip_coef") for value in columns(one, name)[0])


def test_steps_that_another_thread_makes(watch: Watch) -> None:
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    one = watch(model, optimizer)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = square_loss(model)
        loss.backward()
        losses.append(loss.item())
        worker = threading.Thread(target=optimizer.step)
        worker.start()
        worker.join()
    assert columns(one, "loss") == [losses]


def test_an_optimizer_that_was_not_named_and_a_loss_that_was_not_seen(watch: Watch) -> None:
    """A gradient that is put there by hand has no loss: it is unknown, which is no fault of the training."""
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    one = watch(model)
    square_loss(model).backward()
    optimizer.step()
    for _ in range(25):
        optimizer.zero_grad()
        found = torch.autograd.grad(square_loss(model), list(model.parameters()))
        for parameter, gradient in zip(model.parameters(), found, strict=True):
            parameter.grad = gradient
        optimizer.step()
    (losses,) = columns(one, "loss")
    assert is_known(losses[0]) and not any(is_known(loss) for loss in losses[1:])
    (run,) = runs_of(one)
    assert run.first_nonfinite_step is None and not run.findings.keys() & {"nonfinite_loss", "nonfinite_gradient"}


@pytest.mark.wants("torch.nn.utils.clip_grad")
def test_a_layer_that_is_unfrozen_or_frozen_later_begins_a_run_of_its_own(watch: Watch) -> None:
    model = nn.Sequential(nn.Embedding(10, 4, sparse=True), nn.Linear(4, 1)).requires_grad_(False)
    model[0].requires_grad_(True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    one = watch(model, optimizer)
    norms, losses = [], []
    for step in range(8):
        model.requires_grad_(step >= 3) if step == 3 else None
        model[0].requires_grad_(step < 6)
        optimizer.zero_grad()
        loss = model(torch.arange(10)).pow(2).mean()
        loss.backward()
        losses.append(loss.item())
        norms.append(gradient_norm(model))
        optimizer.step()
    runs = runs_of(one)
    assert [len(run.history.layers) for run in runs] == [1, 3, 2] and runs[0].status == "finished"
    for name, wanted in (("grad_norm", norms), ("loss", losses)):
        assert [value for run in runs for value in run.history.column(name).tolist()] == near(wanted)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_scripted_model_has_rows(watch: Watch) -> None:
    model = torch.jit.script(nn.Linear(6, 1))  # has no length, so it is neither true nor false
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    one = watch(model, optimizer)
    loss = square_loss(model)
    loss.backward()
    optimizer.step()
    assert columns(one, "loss") == [near([loss.item()])]


def test_a_checkpointed_part_whose_backward_is_nested(watch: Watch) -> None:
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    one = watch(model, optimizer)
    losses, norms = [], []
    for _ in range(2):
        optimizer.zero_grad()
        hidden = checkpoint(model[0], torch.randn(16, 6, requires_grad=True), use_reentrant=True)
        loss = model[2](model[1](hidden)).pow(2).mean()
        loss.backward()
        losses.append(loss.item())
        norms.append(gradient_norm(model))
        optimizer.step()
    assert columns(one, "loss", "grad_norm") == [near(losses), near(norms)]


def test_other_formats_and_orders_of_memory(watch: Watch) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 1)).to(memory_format=torch.channels_last)
    model = model.double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    one = watch(model, optimizer)
    norms = []
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(2, 3, 8, 8, dtype=torch.float64)).pow(2).mean().backward()
        norms.append(gradient_norm(model))
        optimizer.step()
    assert columns(one, "grad_norm") == [near(norms)]


def test_a_compiled_model_has_its_own_names(watch: Watch) -> None:
    model = small_net()
    compiled: Any = torch.compile(model, backend="eager")
    optimizer = torch.optim.SGD(compiled.parameters(), lr=0.1)
    one = watch(compiled, optimizer)
    square_loss(compiled).backward()
    optimizer.step()
    (run,) = runs_of(one)
    assert [layer.name for layer in run.history.layers] == ["0.weight", "0.bias", "2.weight", "2.bias"]


def test_models_and_optimizers_copy_and_save_as_before(watch: Watch) -> None:
    model = small_net()
    optimizer = torch.optim.Adam(model.parameters())
    watch(model, optimizer)
    square_loss(model).backward()
    optimizer.step()
    saved, inputs = io.BytesIO(), torch.randn(4, 6)
    torch.save({"model": model, "optimizer": optimizer}, saved)
    assert b"gradstudio" not in pickle.dumps(model) + pickle.dumps(optimizer) + saved.getvalue()
    saved.seek(0)
    loaded = torch.load(saved, weights_only=False)
    for twin, its in (
        (copy.deepcopy(model), copy.deepcopy(optimizer)),
        (pickle.loads(pickle.dumps(model)), pickle.loads(pickle.dumps(optimizer))),
        (loaded["model"], loaded["optimizer"]),
    ):
        assert all(torch.equal(weight, twin.state_dict()[name]) for name, weight in model.state_dict().items())
        assert str(its.state_dict()) == str(optimizer.state_dict())
        assert torch.equal(twin(inputs), model(inputs))
        its.step()


def test_a_file_of_a_whole_model_is_the_one_that_it_was(watch: Watch) -> None:
    model, files = small_net(), []
    for _ in range(2):
        files.append(io.BytesIO())
        torch.save(model, files[-1])
        watch(model)
    assert files[0].getvalue() == files[1].getvalue()
    files[1].seek(0)
    torch.serialization.add_safe_globals([nn.Sequential, nn.Linear, nn.Tanh, set])
    try:
        assert isinstance(torch.load(files[1], weights_only=True), nn.Sequential)
    finally:
        torch.serialization.clear_safe_globals()
    assert model._forward_hooks, "the watch goes on"


def test_remedies_are_code(watch: Watch) -> None:
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e12)
    one = watch(model, optimizer, on_nonfinite="ignore")
    for _ in range(6):
        optimizer.zero_grad()
        square_loss(model).backward()
        optimizer.step()
    (run,) = runs_of(one)
    assert run.first_nonfinite_step is not None
    remedies = [remedy for finding in ranked_findings(run) for remedy in finding.remedies]
    assert any(remedy.startswith("`lr=") and "`torch.optim.SGD(...)`" in remedy for remedy in remedies)
    assert not any("clipping." in remedy or "optimizer." in remedy.replace("optimizer.step", "") for remedy in remedies)


@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_clipping_is_no_remedy_for_a_nan_of_unknown_birth_after_calm_gradients(watch: Watch, factor: float) -> None:
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    one = watch(model, optimizer, on_nonfinite="ignore")
    for step in range(8):
        optimizer.zero_grad()
        (square_loss(model) * (0.001 * factor**step if step < 7 else math.nan)).backward()
        optimizer.step()
    (run,) = runs_of(one)
    found = ranked_findings(replace(run, provenance=None))
    (finding,) = (each for each in found if each.rule == "nonfinite_loss")
    assert any("clip_grad_norm_" in remedy for remedy in finding.remedies) is (factor > 1)


def test_a_nan_ends_the_script_where_that_was_asked_for(watch: Watch) -> None:
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch(model, optimizer, on_nonfinite="raise")
    (square_loss(model) * math.nan).backward()
    with pytest.raises(FloatingPointError, match="step 0 is not finite: loss NaN"):
        optimizer.step()


@pytest.mark.parametrize("steps", [1, 4])
def test_an_update_that_breaks_weights_of_no_batch_is_told(
    watch: Watch, capsys: pytest.CaptureFixture[str], steps: int
) -> None:
    """With an eps of 0 Adam divides 0 by 0 where there is no gradient. At the latest it is told at the end."""
    model = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, eps=0)
    one = watch(model, optimizer)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randint(0, 5, (64,))).square().mean().backward()
        optimizer.step()
    assert int(model[0].weight.isnan().sum()) == 20
    one.close()
    (run,) = runs_of(one)
    assert (run.status, run.first_nonfinite_step, len(run.history)) == ("nonfinite", 0, steps)
    assert run.provenance is not None and (run.provenance.step, run.provenance.layers) == (0, ("0.weight",))
    assert sentence(run.provenance) == (
        "The first NaN was born in the update of step 0, in Adam: the update left 20 NaN in 0.weight."
    )
    (first, *_) = ranked_findings(run)
    assert first.rule == "nonfinite_weights" and first.remedies[0].startswith("`eps=1e-8`")
    said = capsys.readouterr().err
    assert said.count("step 0 left weights that are not finite: loss") == 1
    assert "born in  the update of the weights: Adam" in said


@pytest.mark.wants("torch.nn.utils.clip_grad")
def test_an_update_by_hand_that_breaks_weights_is_told_as_the_script_s_own(
    watch: Watch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 1))
    one = watch(model)
    for _ in range(3):
        model.zero_grad()
        model(torch.randint(0, 5, (64,))).square().mean().backward()
        with torch.no_grad():
            for weight in model.parameters():
                assert weight.grad is not None
                weight -= 0.01 * weight.grad / weight.grad.abs()
    one.close()
    (run,) = runs_of(one)
    (first, *_) = ranked_findings(run)
    assert (run.first_nonfinite_step, first.rule) == (0, "nonfinite_weights")
    assert "optimizer.state" not in first.remedies[0] and "a division by 0" in first.remedies[0]
    assert "born in  the update of the weights: the script's own code" in capsys.readouterr().err


def test_broken_weights_are_told_too_where_the_next_update_is_skipped(
    watch: Watch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 1))
    optimizer, scaler = torch.optim.Adam(model.parameters(), lr=0.01, eps=0), torch.amp.GradScaler("cpu", 1024.0)
    one = watch(model, optimizer)
    for factor in (1.0, 1e38, 1.0):
        optimizer.zero_grad()
        scaler.scale(model(torch.randint(0, 5, (64,))).square().mean() * factor).backward()
        scaler.step(optimizer)
        scaler.update()
    one.close()
    (run,) = runs_of(one)
    assert run.first_nonfinite_step == 0 and run.history.column("skipped").tolist() == [0, 1, 0]
    assert capsys.readouterr().err.count("step 0 left weights that are not finite") == 1


def test_broken_weights_are_found_at_a_row_of_every_few_steps(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    one = Watcher(tmp_path / "runs.db", Script(None), every_optimizer=True, options=Options(every=5))
    one.watch(model, optimizer)
    for step in range(20):
        optimizer.zero_grad()
        model(torch.randint(0, 5, (64,))).square().mean().backward()
        optimizer.step()
        if step == 6:
            model[0].weight.data[9] = math.nan
    one.close("finished", "")
    (run,) = [found.run for found in one.runs]
    assert run is not None and run.first_nonfinite_step == 2 and run.provenance is not None
    assert sentence(run.provenance).startswith("The weights held what is not finite before step 2")


def test_a_row_that_another_thread_records_is_waited_for(watch: Watch) -> None:
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    one = watch(model, optimizer)
    square_loss(model).backward()
    optimizer.step()
    (found,) = one.watched_runs
    (run,) = runs_of(one)
    record, begun, waiting = found._writer.record, threading.Event(), threading.Event()

    def slowly(row: Row) -> None:
        begun.set()
        waiting.wait(0.05)  # as long as it takes to judge a row
        record(row)

    found._writer.record = slowly
    layers = np.zeros((len(LAYER_METRICS), len(run.history.layers)), np.float32)
    gradient, settings = Gradient(1.0, 0, layers), run.history.settings[0][1]
    found._rows.append(
        MeasuredStep(1, math.nan, gradient, NOT_MEASURED, 1.0, "none", 0.01, 1.0, False, 1.0, False, None, settings)
    )
    other = threading.Thread(target=found.gather)
    other.start()
    assert begun.wait(PATIENCE)
    assert found.run is run and len(run.history) == 2 and run.first_nonfinite_step == 1
    other.join()


def test_backward_passes_of_other_models_are_not_kept(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(births, "MOST_PASSES", 8)
    trained, idle, reached = small_net(), small_net(), small_net()
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (trained, idle, reached)]
    one, *others = [
        watch(each, optimizer) for each, optimizer in zip((trained, idle, reached), optimizers, strict=True)
    ]
    for _ in range(20):
        optimizers[0].zero_grad()
        (trained(torch.randn(2, 6)).sum() * reached(torch.randn(2, 6)).sum()).backward()
        optimizers[0].step()
    kept: Any = [each._observer.births for each in (one, *others)]
    assert [len(each.passes.step.roots) for each in kept[:2]] == [0, 0] and len(kept[2].passes.step.roots) <= 8
    assert len(columns(one, "loss")[0]) == 20


@pytest.mark.parametrize("to_none", [True, False])
def test_a_layer_that_is_never_called_did_not_vanish(watch: Watch, to_none: bool) -> None:
    model = small_net()
    unused = nn.Linear(3, 3)
    whole = nn.ModuleList([unused, model, small_net()])
    optimizer = torch.optim.SGD(whole.parameters(), lr=0.0)
    one = watch(whole, optimizer)
    for step in range(160):
        optimizer.zero_grad(set_to_none=to_none)
        ((model(torch.randn(16, 6)) ** 2).mean() + 0 * sum(map(torch.sum, whole[2].parameters()))).backward()
        optimizer.step()
        if not step and not to_none:
            for weight in unused.parameters():
                weight.grad = torch.zeros_like(weight)  # as from a step before, in which it was used
    (run,) = runs_of(one)
    assert "vanishing_gradient" not in run.findings
    assert run.findings["unused_layers"].layers == ("0.weight", "0.bias")
    assert [names for _, names in run.history.unused] == [("0.weight", "0.bias")]


def test_a_run_that_ends_with_a_skip_like_those_before_it_has_not_diverged(watch: Watch) -> None:
    model = small_net()
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.01), torch.amp.GradScaler("cpu", init_scale=4.0)
    one = watch(model, optimizer, scaler=scaler)
    for step in range(6):
        optimizer.zero_grad()
        scaler.scale(square_loss(model) * (math.nan if step in (2, 5) else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
    one.close()
    (run,) = runs_of(one)
    assert run.status == "finished" and run.first_nonfinite_step is None and len(run.history) == 6

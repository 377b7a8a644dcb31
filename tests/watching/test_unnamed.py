"""Trainings of which nobody named the model or the optimizer, as under `gradstudio watch`."""

from __future__ import annotations

import copy
import gc
import io
import math
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from waiting import join
from watching.conftest import gradient_norm, near, norm, small_net, square_loss

from gradstudio.core import jit
from gradstudio.core.columns import COLUMNS, LAYER_METRICS
from gradstudio.core.unknown import is_known
from gradstudio.engine.torch_internals import parts
from gradstudio.watching import training_watch
from gradstudio.watching.recording.run_facts import Script
from gradstudio.watching.steps.watch_options import Options
from gradstudio.watching.watcher import Watcher


@pytest.fixture
def watcher(tmp_path: Path) -> Iterator[Watcher]:
    watcher = training_watch.begin(tmp_path / "runs.db", Script(None), True)
    yield watcher
    watcher.close("finished", "")


def test_a_model_that_is_updated_by_hand(watcher: Watcher) -> None:
    model = small_net()
    losses, norms = [], []
    for _ in range(4):
        model.zero_grad()
        loss = square_loss(model)
        loss.backward()
        losses.append(loss.item())
        norms.append(gradient_norm(model))
        with torch.no_grad():
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter -= 0.1 * parameter.grad
    watcher.close("finished", "")
    (found,) = watcher.runs
    assert found.run is not None and found.run.history.column("loss").tolist() == losses
    assert found.run.history.column("grad_norm").tolist() == near(norms)
    assert [layer.name for layer in found.run.history.layers] == ["0.weight", "0.bias", "2.weight", "2.bias"]


def test_what_the_watch_tries_of_torch_by_itself_is_no_training_of_the_script(tmp_path: Path) -> None:
    parts.forget()
    watcher = training_watch.begin(tmp_path / "runs.db", Script(None), True)
    model, beside = small_net(), small_net(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        if step == 2:
            optimizer.add_param_group({"params": beside.parameters()})
        optimizer.zero_grad()
        (square_loss(model) + square_loss(beside)).backward()
        optimizer.step()
    watcher.close("finished", "")
    runs = [found.run for found in watcher.runs if found.run is not None]
    assert [len(run.history) for run in runs] == [2, 2]  # without a third, of `beside` as if it were updated by hand


@pytest.mark.wants("torch.nn.utils.clip_grad")
def test_the_norm_before_a_clip_that_came_before_the_optimizer_was_known_is_unknown(watcher: Watcher) -> None:
    """A copy of an optimizer is seen at its first step."""
    first = small_net()
    pairs = [(first, torch.optim.SGD(first.parameters(), lr=0.01))]
    norms = []
    for step in range(4):
        if step == 2:
            pairs.append(copy.deepcopy(pairs[0]))
        model, optimizer = pairs[-1]
        optimizer.zero_grad()
        (100 * square_loss(model)).backward()
        norms.append(gradient_norm(model))
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
    watcher.close("finished", "")
    found = [run.run.history.column("grad_norm").tolist() for run in watcher.runs if run.run is not None]
    assert found[0] == near(norms[:2])
    assert not is_known(found[1][0]) and found[1][1:] == near(norms[3:])
    (run,) = [run.run for run in watcher.runs[1:]]
    assert run is not None and [each.clipping for _, each in run.history.settings] == ["norm"]


def test_the_last_update_by_hand_counts_though_the_model_is_gone_before_the_end(watcher: Watcher) -> None:
    model = small_net()
    for _ in range(3):
        model.zero_grad()
        square_loss(model).backward()
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.data.add_(parameter.grad, alpha=-0.1)
    del model, parameter
    (found,) = watcher.runs
    assert found.run is not None and len(found.run.history) == 3


@pytest.mark.parametrize("lock", ["of the compiler", "of the library", "of titles"])
def test_a_model_that_the_garbage_collector_finds_in_the_midst_of_the_watch_waits(watcher: Watcher, lock: str) -> None:
    """What it has not told yet is told later, as locks may be held that it would wait for without an end."""
    held: Any = {
        "of the compiler": jit._once,
        "of the library": watcher._writer._lock,
        "of titles": watcher._naming,
    }

    def train() -> None:
        model = small_net()
        square_loss(model).backward()
        for parameter in model.parameters():
            parameter.data.mul_(0.9)
        circle: list[Any] = [model]
        circle.append(circle)

    def collect() -> None:
        train()
        with held[lock]:
            exec("collect()", {"collect": gc.collect})  # by a line that is none of the script

    thread = threading.Thread(target=collect)
    thread.start()
    join(thread)
    watcher.close("finished", "")
    (found,) = watcher.runs
    assert found.run is not None and len(found.run.history) == 1


def test_a_pass_under_autocast_that_a_script_gives_up_at_is_made_again_once(watcher: Watcher) -> None:
    """To make it again enters autocast, which the watch hears while it looks at what is gone."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.scale = nn.Linear(4, 4), nn.Parameter(torch.ones(()))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return torch.log(self.inner(inputs).float().abs() * self.scale)

    def train() -> None:
        model = Scaled()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        for step in range(3):
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(torch.randn(3, 4) * (step < 2)).mean() if step < 2 else model(torch.zeros(3, 4) / 0).mean()
            if not torch.isfinite(loss):
                return
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    train()
    watcher.close("finished", "")
    (found,) = watcher.runs
    assert found.run is not None and len(found.run.history) == 3 and found.run.status == "nonfinite"


@pytest.mark.parametrize("in_script", [True, False])
def test_a_model_that_is_gone_ends_no_script(
    tmp_path: Path, in_script: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    watcher = training_watch.begin(tmp_path / "runs.db", Script(None), True, Options("raise"))
    model = small_net()
    for step in range(3):
        model.zero_grad()
        (square_loss(model) * (math.nan if step == 2 else 1)).backward()
        for parameter in model.parameters():
            parameter.data.mul_(0.9)
    circle: list[Any] = [model]
    circle.append(circle)
    del model, parameter, circle
    exec("collect()", {"collect": gc.collect}) if not in_script else gc.collect()
    torch.optim.SGD(small_net().parameters(), lr=0.1)
    assert not watcher.closed and "step 2 is not finite" in capsys.readouterr().err
    watcher.close("finished", "")
    (found,) = watcher.runs
    assert found.run is not None and len(found.run.history) == 3


def test_a_model_is_heard_once_though_it_gets_another_optimizer(watcher: Watcher) -> None:
    model = small_net()
    for _ in range(3):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        square_loss(model).backward()
        optimizer.step()
        optimizer.zero_grad()
        del optimizer
    assert len(model._forward_hooks) <= 1 and len(watcher.runs) == 3


def test_tensors_without_a_model_that_are_updated_by_hand(watcher: Watcher) -> None:
    torch.manual_seed(0)
    first, second = torch.randn(4, 8, requires_grad=True), torch.randn(8, 1, requires_grad=True)
    losses, norms = [], []
    for _ in range(4):
        first.grad = second.grad = None
        loss = ((torch.randn(16, 4) @ first).tanh() @ second).square().mean()
        loss.backward()
        losses.append(loss.item())
        norms.append(norm([first.grad, second.grad]))
        for tensor in (first, second):
            assert tensor.grad is not None
            tensor.data -= 0.1 * tensor.grad
    watcher.close("finished", "")
    (found,) = watcher.runs
    assert found.run is not None and found.run.history.column("loss").tolist() == losses
    assert found.run.history.column("grad_norm").tolist() == near(norms)


def test_gradients_that_train_nothing_make_no_run(watcher: Watcher) -> None:
    model = small_net()
    for _ in range(12):
        square_loss(model).backward()
        image = torch.randn(3, 6, requires_grad=True)
        image.sin().sum().backward()
    watcher.close("finished", "")
    assert watcher.runs == []


def test_an_optimizer_that_is_made_late_takes_the_model_over(watcher: Watcher) -> None:
    model = small_net()
    square_loss(model).backward()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.02)
    for _ in range(3):
        optimizer.zero_grad()
        square_loss(model).backward()
        optimizer.step()
    watcher.close("finished", "")
    (found,) = watcher.runs
    assert found.run is not None and len(found.run.history) == 3
    settings = found.run.history.settings[0][1]
    assert (settings.optimizer, settings.weight_decay) == ("adamw", 0.02)


class Logarithm(nn.Module):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.log(inputs)


@pytest.mark.wants("torch.utils._python_dispatch", "OpOverload._schema")
def test_the_first_pass_of_an_unnamed_model_is_explained(watcher: Watcher, capsys: pytest.CaptureFixture[str]) -> None:
    model = nn.Sequential(nn.Linear(6, 8), Logarithm(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    square_loss(model).backward()
    optimizer.step()
    (found,) = watcher.runs
    assert found.provenance is not None and found.provenance.module == "1"
    assert found.provenance.operation == "aten.log.default" and "module 1, forward pass" in capsys.readouterr().err


@pytest.mark.wants("torch.utils._python_dispatch", "OpOverload._schema")
@pytest.mark.parametrize(("planted", "steps"), [("model", 2), ("loss", 2), ("model", 0)])
def test_a_script_that_stops_before_the_backward_pass_is_told_where_its_nan_was_born(
    watcher: Watcher, capsys: pytest.CaptureFixture[str], planted: str, steps: int
) -> None:
    def training() -> None:
        model = small_net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(steps + 1):
            inputs = torch.randn(16, 6)
            if step == steps and planted == "model":
                with torch.no_grad():
                    inputs[0, 0] = math.nan
            outputs = model(inputs)
            loss = outputs.square().mean()
            if step == steps and planted == "loss":
                loss = loss + torch.log(loss - 1e9)
            if torch.isnan(loss):
                return  # model, optimizer and loss are gone with this
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    training()
    watcher.close("finished", "")
    (found,) = watcher.runs
    assert found.run is not None and found.run.status == "nonfinite" and len(found.run.history) == steps + 1
    assert math.isnan(found.run.history.value("loss", steps))
    assert not is_known(found.run.history.value("grad_norm", steps))
    assert found.run.provenance is not None and found.run.provenance.step == steps
    said = capsys.readouterr().err.splitlines()
    assert said[0] == f"gradstudio: step {steps} is not finite: loss NaN"
    assert ("born in  what the model was given" if planted == "model" else "loss code: log") in said[1]


def test_a_finished_script_that_evaluates_with_a_mask_is_finite(
    watcher: Watcher, capsys: pytest.CaptureFixture[str]
) -> None:
    model = nn.Sequential(nn.Linear(4, 3), Masked())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        loss = model(torch.randn(5, 4)).softmax(1).square().sum()
        if step < 2:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    watcher.close("finished", "")
    (found,) = watcher.runs
    assert found.run is not None and found.run.status == "finished" and len(found.run.history) == 2
    assert "not finite" not in capsys.readouterr().err


class Masked(nn.Module):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs.masked_fill(torch.tensor([False, True, False]), -math.inf)


@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")
def test_a_watched_model_is_scripted_as_before(watcher: Watcher) -> None:
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = torch.ones(1, 6)
    for _ in range(2):
        square_loss(model).backward()
        optimizer.step()
        scripted = torch.jit.script(model)  # pyright: ignore[reportPrivateImportUsage]
        assert torch.equal(scripted(inputs), model(inputs))
        torch.jit.save(scripted, io.BytesIO())  # pyright: ignore[reportPrivateImportUsage]
    (found,) = watcher.runs
    assert found.run is not None and len(found.run.history) == 2 and not watcher.closed
    assert found.observer.births is not None and len(model._forward_hooks) == 1  # the watch is on again


def test_two_threads_train_at_once_models_that_were_made_in_a_third(watcher: Watcher) -> None:
    models = [small_net(seed) for seed in range(2)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.01) for model in models]
    losses: list[list[float]] = [[], []]

    def train(number: int) -> None:
        for _ in range(100):
            optimizers[number].zero_grad()
            loss = models[number](torch.ones(4, 6)).square().mean()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(models[number].parameters(), 1.0)
            optimizers[number].step()
            losses[number].append(loss.item())

    threads = [threading.Thread(target=train, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        join(thread)
    watcher.close("finished", "")
    runs = [found.run for found in watcher.runs if found.run]
    assert sorted(run.history.column("loss").tolist() for run in runs) == sorted(losses)
    assert len({run.title for run in runs}) == 2


def test_a_nan_between_two_rows_is_kept_and_said_with_both_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = Watcher(tmp_path / "runs.db", Script(None), every_optimizer=True, options=Options(every=4))
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(7):
        inputs = torch.full((4, 6), math.nan if step == 6 else 1.0)
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
    one.close("finished", "")
    (found,) = one.runs
    assert found.run is not None and found.run.first_nonfinite_step == 2 and len(found.run.history) == 3
    first = capsys.readouterr().err.splitlines()[0]
    assert "step 6 is not finite" in first and first.endswith("step 2 of the run, which counts rows")


def test_rows_between_which_steps_are_passed_by_are_those_of_every_step(tmp_path: Path) -> None:
    def rows(every: int) -> tuple[np.ndarray, np.ndarray]:
        torch.manual_seed(0)
        model = small_net()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        one = Watcher(tmp_path / f"{every}.db", Script(None), every_optimizer=True, options=Options("ignore", every))
        for step in range(12):
            optimizer.zero_grad()
            for _ in range(2):
                model(torch.full((4, 6), math.nan if step == 10 else 0.1 * step)).square().mean().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
        one.close("finished", "")
        (found,) = one.runs
        assert found.run is not None
        history = found.run.history
        columns = [history.column(name) for name in COLUMNS if name not in ("step", "step_seconds")]
        return np.stack(columns), np.stack([history.layer_metric(name) for name in LAYER_METRICS])

    columns, layers = rows(1)
    some, of_some = rows(4)
    kept = [0, 4, 8, 10, 11]  # of 4 one, and what is not finite
    np.testing.assert_array_equal(some, columns[:, kept])
    np.testing.assert_array_equal(of_some, layers[:, kept])


class OfNegatives(nn.Module):
    """Takes the logarithm of numbers of either sign. It has a length, and that is 0."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.last(torch.log(self.first(inputs)))

    def __len__(self) -> int:
        return 0


@pytest.mark.wants("torch.utils._python_dispatch", "OpOverload._schema")
@pytest.mark.parametrize("compiled", ["", "around it", "in place"])
def test_a_nan_of_a_model_is_found_in_it_also_where_it_is_compiled(watcher: Watcher, compiled: str) -> None:
    model = OfNegatives()
    nn.init.ones_(model.first.weight)
    called = torch.compile(model, backend="eager") if compiled == "around it" else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if compiled == "in place":
        model.compile(backend="eager")
    for sign in (1, -1):
        optimizer.zero_grad()
        called(sign * torch.full((5, 4), 2.0)).square().mean().backward()
        optimizer.step()
    watcher.close("finished", "")
    (found,) = watcher.runs
    assert found.run is not None and found.run.provenance is not None
    assert (found.run.provenance.phase, found.run.provenance.short_name) == ("forward", "log")

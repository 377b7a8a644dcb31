"""A training that is measured on its own device. There may be no GPU here, so the CPU stands for one: its rows come a
step late all the same, and must be those of a training that is measured on the host."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import gradstudio
from gradstudio.core.columns import COLUMNS, LAYER_METRICS
from gradstudio.session.record.run import Run
from gradstudio.watching import training_watch
from gradstudio.watching.measuring import device_parameters
from gradstudio.watching.measuring.device_parameters import DeviceParameters

Script = Callable[[Callable[[nn.Module, Any], None]], None]
TIMED = ("step_seconds",)


def plain(begin: Callable[[nn.Module, Any], None]) -> None:
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    begin(model, optimizer)
    for _ in range(6):
        optimizer.zero_grad()
        F.cross_entropy(model(torch.randn(8, 6)), torch.randint(3, (8,))).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()


def accumulated_and_kept(begin: Callable[[nn.Module, Any], None]) -> None:
    model = nn.Conv2d(2, 3, 3).to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    begin(model, optimizer)
    for _ in range(4):
        for _ in range(2):
            (model(torch.randn(2, 2, 5, 5)).square().mean() / 2).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)


def half_used(begin: Callable[[nn.Module, Any], None]) -> None:
    model = nn.ModuleDict({"used": nn.Linear(4, 2).bfloat16(), "unused": nn.Linear(4, 2)})
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    begin(model, optimizer)
    for _ in range(4):
        optimizer.zero_grad()
        model["used"](torch.randn(3, 4).bfloat16()).float().square().mean().backward()
        optimizer.step()


def train(
    begin: Any, model: nn.Module, optimizer: Any, loss: Callable[[], torch.Tensor], spoil: Callable[[], Any]
) -> None:
    """Train for six steps, and spoil something before the fifth."""
    begin(model, optimizer)
    for step in range(6):
        optimizer.zero_grad()
        if step == 4:
            spoil()
        loss().backward()
        optimizer.step()


def breaking(begin: Callable[[nn.Module, Any], None]) -> None:
    model, factor = nn.Linear(4, 1), torch.ones(())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    train(
        begin,
        model,
        optimizer,
        lambda: model(torch.randn(3, 4)).square().mean() * factor,
        lambda: factor.fill_(math.nan),
    )


def broken_by_an_update(begin: Callable[[nn.Module, Any], None]) -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    (group,) = optimizer.param_groups
    train(begin, model, optimizer, lambda: model(torch.randn(3, 4)).square().mean(), lambda: group.update(lr=math.inf))


def broken_by_a_penalty(begin: Callable[[nn.Module, Any], None]) -> None:
    """The loss code reads the weights, and the root of 0 has no finite derivative."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def loss() -> torch.Tensor:
        return model(torch.randn(3, 4)).square().mean() + model.bias.square().sum().sqrt()

    train(begin, model, optimizer, loss, lambda: nn.init.zeros_(model.bias))


class Length(nn.Module):
    """The length of a vector, whose gradient is NaN at 0."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs.square().sum(-1, keepdim=True).sqrt()


def broken_within(begin: Callable[[nn.Module, Any], None]) -> None:
    """After the update the weights are NaN, and another operation would be the first with one."""
    model = nn.Sequential(nn.Linear(4, 4), Length())
    optimizer = torch.optim.AdamW(model.parameters(), 0.1)
    train(
        begin,
        model,
        optimizer,
        lambda: model(torch.randn(8, 4)).mean(),
        lambda: [nn.init.zeros_(each) for each in model.parameters()],
    )


def broken_by_an_input_that_is_trained(begin: Callable[[nn.Module, Any], None]) -> None:
    """The update changes the input in place."""
    model, prompt = nn.Sequential(Length(), nn.Linear(1, 1)), nn.Parameter(torch.randn(3, 4))
    optimizer = torch.optim.SGD([*model.parameters(), prompt], 0.1)
    train(begin, model, optimizer, lambda: model(prompt).mean(), lambda: nn.init.zeros_(prompt))


BREAKING = (breaking, broken_by_an_update, broken_by_a_penalty, broken_by_an_input_that_is_trained, broken_within)


def run_of(script: Script, path: Path) -> tuple[Run, bool]:
    """Return the run of a script, and whether it was measured on the device."""
    begun: list[Any] = []
    torch.manual_seed(0)

    def begin(model: nn.Module, optimizer: Any) -> None:  # without a record, for which some steps do not wait
        begun.extend((gradstudio.watch(model, optimizer, library=path, record=0), model, optimizer))

    script(begin)
    on_device = isinstance(begun[0]._observer.parameters, DeviceParameters)
    watcher = training_watch.current()
    assert watcher is not None
    watcher.close("finished", "")
    (found,) = begun[0].watched_runs
    return found.run, on_device


@pytest.mark.parametrize("script", [plain, accumulated_and_kept, half_used, *BREAKING])
def test_the_rows_are_those_of_the_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: Script) -> None:
    host, on_device = run_of(script, tmp_path / "host.db")
    assert not on_device
    monkeypatch.setattr(device_parameters, "MEASURED_THERE", ("cpu",))
    went_back, before_update = list[Any](), DeviceParameters.before_update
    monkeypatch.setattr(DeviceParameters, "before_update", lambda self: went_back.append(self) or before_update(self))
    device, on_device = run_of(script, tmp_path / "device.db")
    assert on_device and len(device.history) == len(host.history)
    assert bool(went_back) == (script in BREAKING)
    for name in COLUMNS:
        if name not in TIMED:
            found, wanted = (run.history.column(name).tolist() for run in (device, host))
            assert found == pytest.approx(wanted, rel=1e-6, abs=1e-12, nan_ok=True), name
    for metric in LAYER_METRICS:
        found, wanted = (run.history.layer_metric(metric) for run in (device, host))
        assert found == pytest.approx(wanted, rel=1e-5, nan_ok=True), metric
    assert device.first_nonfinite_step == host.first_nonfinite_step
    assert device.provenance == host.provenance
    assert (host.provenance is None) == (script not in BREAKING)
    assert list(device.findings) == list(host.findings)


class Logged(torch.optim.SGD):
    """Logs when its update is made."""

    log: list[str]

    def step(self, closure: Any = None) -> Any:
        self.log.append("update")
        return super().step(closure)


@pytest.mark.parametrize("settings", [{}, {"updates": False}, {"on_nonfinite": "skip"}])
def test_figures_are_read_after_the_update_unless_they_decide_on_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: dict[str, Any]
) -> None:
    model, log = nn.Linear(4, 1), list[str]()
    optimizer = Logged(model.parameters(), 0.1)
    optimizer.log = log
    monkeypatch.setattr(device_parameters, "MEASURED_THERE", ("cpu",))
    wait = device_parameters.PendingFigures.wait
    monkeypatch.setattr(device_parameters.PendingFigures, "wait", lambda self: log.append("wait") or wait(self))
    gradstudio.watch(model, optimizer, library=tmp_path / "runs.db", record=0, **settings)
    reads_before = list[bool]()
    for _ in range(6):
        optimizer.zero_grad()
        model(torch.randn(3, 4)).square().mean().backward()
        log.clear()
        optimizer.step()
        reads_before.append("wait" in log[: log.index("update")])
    assert reads_before[2:] == [bool(settings)] * 4
    watcher = training_watch.current()
    assert watcher is not None
    watcher.close("finished", "")


def test_gradients_are_released_after_the_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(device_parameters, "MEASURED_THERE", ("cpu",))
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    gradstudio.watch(model, optimizer, library=tmp_path / "runs.db")
    for _ in range(4):
        model(torch.randn(3, 4)).square().mean().backward()
        gradient = weakref.ref(model.weight.grad)
        optimizer.step()
        optimizer.zero_grad()
        assert gradient() is None
    watcher = training_watch.current()
    assert watcher is not None
    watcher.close("finished", "")


@pytest.mark.parametrize("script", BREAKING)
def test_a_search_after_the_update_leaves_the_weights_as_they_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: Script
) -> None:
    ended = list[list[torch.Tensor]]()

    def note(model: nn.Module, optimizer: Any) -> None:
        ended.append(list(model.parameters()))

    torch.manual_seed(0)
    script(note)
    monkeypatch.setattr(device_parameters, "MEASURED_THERE", ("cpu",))
    run_of(lambda begin: script(lambda *given: (note(*given), begin(*given))), tmp_path / "runs.db")  # pyright: ignore[reportArgumentType]
    for bare, watched in zip(*ended, strict=True):
        assert torch.equal(bare.nan_to_num(7), watched.nan_to_num(7))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_a_watched_step_makes_no_call_that_waits_for_the_gpu(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    one = gradstudio.watch(model, optimizer, library=tmp_path / "runs.db")
    inputs, labels = torch.randn(8, 6, device="cuda"), torch.randint(3, (8,), device="cuda")
    try:
        for step in range(8):
            if step == 4:  # what is asked once has been asked by then
                torch.cuda.set_sync_debug_mode("error")
            optimizer.zero_grad()
            F.cross_entropy(model(inputs), labels).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    watcher = training_watch.current()
    assert watcher is not None and not watcher.closed
    one.close()
    (found,) = one.watched_runs
    assert found.run is not None and len(found.run.history) == 8
    watcher.close("finished", "")

"""A training that is measured on its own device. There may be no GPU here, so the CPU stands for one: its rows come a
step late all the same, and must be those of a training that is measured on the host."""

from __future__ import annotations

import math
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


def breaking(begin: Callable[[nn.Module, Any], None]) -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    begin(model, optimizer)
    for step in range(5):
        optimizer.zero_grad()
        (model(torch.randn(3, 4)).square().mean() * (math.nan if step == 3 else 1)).backward()
        optimizer.step()


def broken_by_an_update(begin: Callable[[nn.Module, Any], None]) -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    begin(model, optimizer)
    for step in range(5):
        optimizer.zero_grad()
        model(torch.randn(3, 4)).square().mean().backward()
        optimizer.param_groups[0]["lr"] = math.inf if step == 3 else 0.1
        optimizer.step()


def run_of(script: Script, path: Path) -> tuple[Run, bool]:
    """Return the run of a script, and whether it was measured on the device."""
    begun: list[Any] = []
    torch.manual_seed(0)
    script(lambda model, optimizer: begun.extend((gradstudio.watch(model, optimizer, library=path), model, optimizer)))
    on_device = isinstance(begun[0]._observer.parameters, DeviceParameters)
    watcher = training_watch.current()
    assert watcher is not None
    watcher.close("finished", "")
    (found,) = begun[0].watched_runs
    return found.run, on_device


@pytest.mark.parametrize("script", [plain, accumulated_and_kept, half_used, breaking, broken_by_an_update])
def test_the_rows_are_those_of_the_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: Script) -> None:
    host, on_device = run_of(script, tmp_path / "host.db")
    assert not on_device
    monkeypatch.setattr(device_parameters, "MEASURED_THERE", ("cpu",))
    device, on_device = run_of(script, tmp_path / "device.db")
    assert on_device and len(device.history) == len(host.history)
    for name in COLUMNS:
        if name not in TIMED:
            found, wanted = (run.history.column(name).tolist() for run in (device, host))
            assert found == pytest.approx(wanted, rel=1e-6, abs=1e-12, nan_ok=True), name
    for metric in LAYER_METRICS:
        found, wanted = (run.history.layer_metric(metric) for run in (device, host))
        assert found == pytest.approx(wanted, rel=1e-5, nan_ok=True), metric
    assert device.first_nonfinite_step == host.first_nonfinite_step
    births = [
        None if run.provenance is None else (run.provenance.phase, run.provenance.cause) for run in (device, host)
    ]
    assert births[0] == births[1]
    assert list(device.findings) == list(host.findings)


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

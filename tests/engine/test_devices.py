from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from waiting import PATIENCE

from gradstudio.core.experiment import Experiment
from gradstudio.core.knobs import KnobError
from gradstudio.engine import devices
from gradstudio.engine.trainer import Trainer


def test_the_cpu_is_there_with_its_name():
    first = devices.available()[0]
    assert first.id == "cpu" and first.name


@pytest.mark.parametrize("device", [device.id for device in devices.available()])
def test_every_device_trains(train, device):
    rows = train(3, f"run.device={device}", "run.seed=4")
    assert devices.resolve(device) == device
    assert rows[0].loss == pytest.approx(train(1, "run.seed=4")[0].loss, rel=1e-4)


def test_auto_is_the_first_accelerator_or_the_cpu():
    ids = [device.id for device in devices.available()]
    assert devices.resolve("auto") == (ids[1] if len(ids) > 1 else "cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
def test_a_device_that_is_not_there(device):
    allowed = ", ".join(["auto", *(found.id for found in devices.available())])
    with pytest.raises(KnobError) as fault:
        Trainer(Experiment().with_value("run.device", device))
    assert str(fault.value).startswith(f"run.device = {device} is not allowed; allowed here: {allowed}")


def test_the_environment_says_where_it_was(build):
    found = build().environment
    assert {
        "python",
        "torch",
        "numpy",
        "numba",
        "gradstudio",
        "platform",
        "processor",
        "device",
        "device_name",
        "threads",
        "deterministic",
    } <= set(found)
    assert all(isinstance(value, str) and value for value in found.values())
    assert found["device"] == "cpu" and found["deterministic"] == "true"


def python(code, **environment):
    variables = {
        name: value for name, value in os.environ.items() if name not in ("OMP_NUM_THREADS", "GRADSTUDIO_THREADS")
    } | environment
    return subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, timeout=PATIENCE)


@pytest.mark.parametrize(
    ("setting", "threads"), [({}, "1"), ({"GRADSTUDIO_THREADS": "2"}, "2"), ({"OMP_NUM_THREADS": "2"}, "2")]
)
def test_threads_are_set_before_torch_is_imported(setting, threads):
    found = python("import gradstudio.engine, os; print(os.environ['OMP_NUM_THREADS'])", **setting)
    assert found.stdout.split() == [threads], found.stderr


@pytest.mark.parametrize("value", ["0", "two", "-1", "1.5"])
def test_a_number_of_threads_that_is_none(value):
    found = python("import gradstudio.engine", GRADSTUDIO_THREADS=value)
    assert (
        f"GRADSTUDIO_THREADS = {value} is not allowed; allowed: a whole number from 1 to 1024 (default 1)"
        in found.stderr.splitlines()[-1]
    )

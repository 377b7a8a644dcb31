"""`gradstudio places`, and runs at a place: same output, same exit codes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

OTHER = f"env GRADSTUDIO_THREADS=1 PYTHONPATH={Path(__file__).parents[2]} {sys.executable}"

# The doctor without what opens Qt and reads files.
QUICK = """
import sys
from gradstudio.session.machine import doctor
doctor.CHECKS = (doctor._program, doctor._python, doctor._packages, doctor._devices)
del sys.argv[1]
print("Welcome to [lab]")
from gradstudio.cli import main
main()
"""
OWN = """
import torch
import only_there

def build_model():
    return torch.nn.Linear(2, only_there.WIDTH)

def get_batch(batch_size, generator):
    return torch.randn(batch_size, 2, generator=generator)

def compute_loss(model, batch):
    return model(batch).square().mean()
"""


@pytest.fixture(autouse=True)
def own_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def test_places(gradstudio: Callable) -> None:
    assert "no places yet" in gradstudio("places").err
    assert gradstudio("places", "add", "lab", "ssh lab").code == 0
    assert gradstudio("places").out == "lab  ssh lab\n" == gradstudio("places", "list").out
    assert json.loads(gradstudio("places", "--json").out) == [{"name": "lab", "command": "ssh lab", "keep": False}]
    wrong = gradstudio("places", "add", "here", "ssh lab")
    assert (wrong.code, wrong.err.count("\n")) == (2, 1)
    assert gradstudio("places", "remove", "lab").code == 0
    assert gradstudio("run", "rnn-explosion", "--place", "lab").code == 2


def test_a_run_at_a_place(gradstudio: Callable, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through commands that begin another: one that speaks of its queue first, and one that takes words as they are."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for name, text in (
        ("srun", 'echo "srun: job 1 queued" >&2; shift; exec "$@"'),
        ("docker", '[ "$1 $2 $3 $5" = "exec -i box X=a  b" ] || exit 2; shift 3; exec "$@"'),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    inside = OTHER.replace("env", "env 'X=a  b'", 1)
    gradstudio("places", "add", "other", f"srun --gres=gpu:1 docker exec -i box {inside}")
    here, there = gradstudio("run", small, "--json"), gradstudio("run", small, "--json", "--place", "other")
    differing = ("run", "started", "seconds", "seconds_per_step", "environment")
    one, other = ({**json.loads(each.out), **dict.fromkeys(differing)} for each in (here, there))
    assert one == other and one["outcome"] == "finished" and (here.code, there.code) == (0, 0) and there.err == ""
    assert gradstudio("runs").out.count("finished") == 2


def test_a_studio_file_imports_what_the_place_has(gradstudio: Callable, tmp_path: Path) -> None:
    """The file stays here, and a package that only the other Python has is imported there."""
    (tmp_path / "only_there.py").write_text("WIDTH = 3\n")
    file = tmp_path / "own.py"
    file.write_text(OWN)
    gradstudio("places", "add", "other", OTHER.replace("PYTHONPATH=", f"PYTHONPATH={tmp_path}:"))
    asked = gradstudio("run", file, "--steps", "4", "--device", "cpu", "--place", "other")
    assert asked.code == 2 and "add --trust" in asked.err
    there = gradstudio("run", file, "--steps", "4", "--device", "cpu", "--place", "other", "--trust")
    assert there.code == 0 and "in 4 steps on cpu" in there.out, there.err


def test_what_a_place_has(gradstudio: Callable, tmp_path: Path) -> None:
    asked = tmp_path / "asked.py"
    asked.write_text(QUICK)
    gradstudio("places", "add", "other", f"{OTHER} {asked} gradstudio")
    gradstudio("places", "add", "broken", "sh -c 'echo no such host >&2; exit 255'")
    answer = gradstudio("places", "check", "--json")
    other, broken = json.loads(answer.out)
    assert other["devices"][0]["id"] == "cpu" and other["devices"][0]["free"] > 0 and other["problem"] == ""
    assert "torch" in other["versions"] and broken["problem"] == "no such host" and answer.code == 1

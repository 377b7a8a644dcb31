"""The gate of a CI job: `gradstudio watch --fail-on`, as the documentation has it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from xml.etree import ElementTree

import pytest
import torch
from watching.conftest import small_net, square_loss
from watching.test_launcher import TRAINING, run

from gradstudio.core.diagnosis.finding import Finding
from gradstudio.session.files import gate
from gradstudio.session.record.run import Run
from gradstudio.watching import launcher

PAGE = Path(__file__).parents[2] / "docs" / "watch.md"
DIVERGES = TRAINING[: TRAINING.index("sys.stdout.flush")].replace("from package ", "").replace("0.1)", "1e30)")


def test_the_workflow_of_the_documentation_fails_for_a_training_that_diverges(tmp_path: Path) -> None:
    (command,) = re.findall(r"- run: gradstudio (watch .*)", PAGE.read_text())
    (tmp_path / "train.py").write_text(DIVERGES)
    watched = run(["-m", "gradstudio", *shlex.split(command)], tmp_path)
    assert watched.returncode == 3 and len(watched.stdout.splitlines()) == 31
    suite = ElementTree.parse(tmp_path / "gradstudio.xml").getroot()
    (case,) = suite
    failure = case.find("failure")
    assert (suite.get("tests"), suite.get("failures"), case.get("name")) == ("1", "1", "train.py: Sequential net")
    assert failure is not None and failure.text is not None and "\ntry: " in failure.text


def finding(severity: Any, title: str = "Large, and: larger") -> Finding:
    return Finding("loss_spike", severity, title, 3, 5, (), "It was 7 %.", "Bad.", ("less",))


@pytest.mark.parametrize(
    ("bar", "severity", "diverged_at", "code"),
    [
        ("warning", "info", None, 0), ("warning", "warning", None, 4), ("critical", "warning", None, 0),
        ("critical", "critical", None, 4), ("diverged", "critical", None, 0), ("diverged", "critical", 7, 3),
        ("warning", "critical", 7, 3),
    ],
)  # fmt: skip
def test_the_exit_code_is_that_of_a_run_of_the_studio(bar: str, severity: str, diverged_at: int, code: int) -> None:
    findings = {"loss_spike": finding(severity)}
    found = cast(Run, SimpleNamespace(findings=findings, first_nonfinite_step=diverged_at))
    assert gate.exit_code([found], bar) == code
    assert gate.exit_code([], bar) == 1  # nothing has passed


@pytest.mark.parametrize("at", ["critical", "diverged"])
def test_a_script_is_ended_at_a_finding_and_github_is_told(
    at: str, watch: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    order = launcher.Order(
        target=str(tmp_path / "train.py"), arguments=(), as_module=False, name="", library=str(tmp_path / "runs.db"),
        on_nonfinite="ignore", every=1, updates=True, out="", quiet=True, fail_on="", stop_on=at,
        junit=str(tmp_path / "runs.xml"),
    )  # fmt: skip
    codes: list[int] = []
    monkeypatch.setattr(launcher.os, "_exit", codes.append)
    end = launcher.begin(json.dumps(asdict(order)))
    net = small_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e30)
    with pytest.raises(SystemExit) as ended:
        for _ in range(100):
            optimizer.zero_grad()
            square_loss(net).backward()
            optimizer.step()
    end()
    assert ended.value.code == 3 and codes == [3]
    told = capsys.readouterr().err.splitlines()
    assert told and all(line.startswith("::error title=") for line in told[:1])
    assert ElementTree.parse(tmp_path / "runs.xml").getroot().get("failures") == "1"

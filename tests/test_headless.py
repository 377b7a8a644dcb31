"""A machine without a window: nothing but the window needs Qt."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from waiting import PATIENCE

ROOT = Path(__file__).parent.parent
GONE = "raise ModuleNotFoundError(f'No module named {name!r}', name=name)"
BROKEN = "raise ImportError('libEGL.so.1: cannot open shared object file: No such file or directory', name=name)"
# Python imports this by itself in every process, so in those too that a command becomes.
REFUSING = """
import sys

class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("PySide6", "shiboken6", "pyqtgraph"):
            {raising}

sys.meta_path.insert(0, Refusing())
"""
SEVERAL = """
import sys
from gradstudio.cli import main

for words in {commands!r}:
    sys.argv = ["gradstudio", *words]
    try:
        main()
    except SystemExit as end:
        print("code of", words[0], end.code, flush=True)
{script}
"""
# As an optimizer trains, for which torch imports its compiler, for two seconds.
TRAINING = """
for step in range(3):
    model.zero_grad()
    model(torch.ones(4, 2)).square().mean().backward()
    with torch.no_grad():
        for each in model.parameters():
            each -= 0.1 * each.grad
print("trained")
"""
MODEL = "import torch\nmodel = torch.nn.Linear(2, 1)\n"
SCRIPT = MODEL + TRAINING
SCRIPT_WITH_A_LINE = f"{MODEL}import gradstudio\ngradstudio.watch(model, name='by a line')\n{TRAINING}"


def without_qt(folder: Path, raising: str = GONE) -> dict[str, str]:
    """The environment of a process in which Qt is not installed, or cannot be loaded."""
    (folder / "sitecustomize.py").write_text(REFUSING.format(raising=raising))
    return {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}


def run(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def test_the_commands_work(tmp_path: Path) -> None:
    commands = [
        ["run", "rnn-explosion", "--set", "run.steps=2"],
        ["runs"],
        ["report", "last", "--format", "html,csv", "--out", str(tmp_path / "of_report")],
        ["script", "last"],
    ]
    done = run(without_qt(tmp_path), "-c", SEVERAL.format(commands=commands, script=SCRIPT_WITH_A_LINE))
    assert re.findall(r"code of (\w+ \d)", done.stdout) == ["run 0", "runs 0", "report 0", "script 0"], done
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "trained"), done
    assert ": by a line, 3 rows, finished\n" in done.stderr  # told as the program ends
    assert {path.suffix for path in (tmp_path / "of_report").iterdir()} == {".html", ".csv"}


def test_a_script_is_watched(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    done = run(without_qt(tmp_path), "-m", "gradstudio", "watch", str(tmp_path / "train.py"))
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    assert ": train.py: Linear model, 3 rows, finished\n" in done.stderr


@pytest.mark.parametrize(("raising", "said"), [(GONE, "PySide6 is not installed"), (BROKEN, "libEGL.so.1 is missing")])
def test_the_window_says_in_one_line_what_is_missing(tmp_path: Path, raising: str, said: str) -> None:
    done = run({**without_qt(tmp_path, raising), "QT_QPA_PLATFORM": "offscreen"}, "-m", "gradstudio")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert said in done.stderr


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="menu entries are made on Linux")
def test_no_menu_entry_is_made_for_a_window_that_cannot_open(tmp_path: Path) -> None:
    environment = {**without_qt(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data")}
    done = run(environment, "-m", "gradstudio", "desktop", "install")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "PySide6" in done.stderr and not (tmp_path / "data").exists()
    assert "no menu entry" in run(environment, "-m", "gradstudio", "desktop", "uninstall").stdout


def test_what_a_headless_machine_installs_is_what_the_program_needs_but_for_qt() -> None:
    lines = (ROOT / "headless.txt").read_text().splitlines()
    headless = [line for line in lines if line and not line.startswith("#")]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert headless == [each for each in project["dependencies"] if not each.startswith(("PySide6", "pyqtgraph"))]

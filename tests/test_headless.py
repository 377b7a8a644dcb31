"""The package without its extras: no Qt, no compiler, no matplotlib. What needs one says in one line which."""

from __future__ import annotations

import os
import subprocess
import sys
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
        if name.partition(".")[0] in {away}:
            {raising}

sys.meta_path.insert(0, Refusing())
"""
WINDOW = ("PySide6", "shiboken6", "pyqtgraph")
EXTRAS = (*WINDOW, "numba", "llvmlite", "matplotlib", "pyarrow", "distributed")
SEVERAL = """
import sys
from gradstudio.cli import main

for words in {commands!r}:
    sys.argv = ["gradstudio", *words]
    try:
        main()
    except SystemExit as end:
        print("code of", *words[:2], end.code, flush=True)
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


def without(folder: Path, away: tuple[str, ...] = EXTRAS, raising: str = GONE) -> dict[str, str]:
    """The environment of a process in which these are not installed, or cannot be loaded."""
    (folder / "sitecustomize.py").write_text(REFUSING.format(raising=raising, away=away))
    return {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}


def run(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def test_the_commands_work(tmp_path: Path) -> None:
    out = str(tmp_path / "of_report")
    commands = {
        ("run", "rnn-explosion", "--set", "run.steps=2", "--quiet"): 0,
        ("branch", "last", "--step", "1", "--set", "clipping.kind=norm", "--quiet"): 0,
        ("runs", "show", "last"): 0,
        ("runs", "export", "last", str(tmp_path / "one.gsrun")): 0,
        ("report", "last", "--format", "csv,json,toml", "--out", out): 0,
        ("report", "last", "--format", "html", "--out", out): 2,
        ("report", "last", "--format", "pdf", "--out", out): 2,
        ("course", "handbook", "--only", "rnn-explosion", "--out", out): 2,
        ("course", "list"): 0,
        ("script", "last"): 0,
        ("presets", "show", "rnn-explosion"): 0,
        ("new", str(tmp_path / "mine.py")): 0,
        ("schema", "preset"): 0,
        ("exam", "new", "dying-relu", "--out", str(tmp_path / "exam.toml")): 0,
    }
    done = run(without(tmp_path), "-c", SEVERAL.format(commands=list(commands), script=SCRIPT_WITH_A_LINE))
    codes = [line for line in done.stdout.splitlines() if line.startswith("code of ")]
    assert codes == [f"code of {' '.join(words[:2])} {code}" for words, code in commands.items()], done
    assert done.stderr.count("needs matplotlib, which is not installed: pip install 'gradstudio[report]'\n") == 3
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "trained"), done
    assert ": by a line, 3 rows, finished\n" in done.stderr  # told as the program ends
    assert {path.name for path in (tmp_path / "of_report").iterdir()} >= {"metrics.csv", "run.json"}


def test_a_script_is_watched(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    done = run(without(tmp_path), "-m", "gradstudio", "watch", str(tmp_path / "train.py"))
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    assert ": train.py: Linear model, 3 rows, finished\n" in done.stderr


@pytest.mark.parametrize(("raising", "said"), [(GONE, "PySide6 is not installed"), (BROKEN, "libEGL.so.1 is missing")])
def test_the_window_says_in_one_line_what_is_missing(tmp_path: Path, raising: str, said: str) -> None:
    done = run({**without(tmp_path, WINDOW, raising), "QT_QPA_PLATFORM": "offscreen"}, "-m", "gradstudio")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert said in done.stderr


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="menu entries are made on Linux")
def test_no_menu_entry_is_made_for_a_window_that_cannot_open(tmp_path: Path) -> None:
    environment = {**without(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data")}
    done = run(environment, "-m", "gradstudio", "desktop", "install")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "PySide6" in done.stderr and not (tmp_path / "data").exists()
    assert "no menu entry" in run(environment, "-m", "gradstudio", "desktop", "uninstall").stdout

"""`gradstudio watch --python` runs a script in another environment, in which GradStudio is not installed."""

from __future__ import annotations

import os
import site
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

import pytest
from waiting import PATIENCE

ROOT = Path(__file__).parents[2]
NOT_THERE = (
    "gradstudio", "_editable", "platformdirs", "tomli_w", "typer", "rich", "isal", "numba", "llvmlite", "PySide6",
    "shiboken6", "pyqtgraph", "matplotlib", "jinja2",
)  # fmt: skip
SCRIPT = """
import sys, torch
assert "gradstudio" not in sys.path[0] and not any(name in sys.modules for name in ("typer", "numba", "rich"))
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(4, 2)).square().mean().backward()
    optimizer.step()
print(sys.prefix)
"""


def environment(home: Path) -> Path:
    """Make an environment without anything in it. Return the folder of its packages."""
    venv.create(home, with_pip=False)
    return Path(sysconfig.get_path("purelib", "venv", vars={"base": str(home)}))


def test_a_script_is_watched_where_gradstudio_is_not_installed(tmp_path: Path) -> None:
    packages = environment(tmp_path / "theirs")
    for each in Path(site.getsitepackages()[0]).iterdir():
        if not each.name.startswith(NOT_THERE) and each.suffix != ".pth":
            (packages / each.name).symlink_to(each)
    (tmp_path / "train.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-m", "gradstudio", "watch", "--python", str(tmp_path / "theirs"), str(tmp_path / "train.py")],
        env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'theirs'}\n"), done.stderr
    assert ": train.py: Linear model, 3 rows, finished\n" in done.stderr


@pytest.mark.parametrize(
    ("versions", "said"),
    [
        ({}, "torch is not installed there"),
        ({"torch": "2.3.1"}, "its torch 2.3.1 is too old"),
        ({"torch": "2.8.0+cu126", "numpy": "2.1.0"}, "pydantic is not installed there: install pydantic 2.7 or newer"),
    ],
)
def test_what_the_other_environment_lacks_is_one_line(
    gradstudio: Callable, tmp_path: Path, versions: dict[str, str], said: str
) -> None:
    packages = environment(tmp_path / "theirs")
    for name, version in versions.items():
        (packages / f"{name}-{version}.dist-info").mkdir()
        (packages / f"{name}-{version}.dist-info" / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    (tmp_path / "train.py").touch()
    answer = gradstudio("watch", "--python", tmp_path / "theirs", tmp_path / "train.py")
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1) and said in answer.err


def test_what_is_no_python_is_one_line(gradstudio: Callable, tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    for path, said in ((tmp_path / "nowhere", "no such program"), ("cat", "no Python"), (__file__, "no such program")):
        answer = gradstudio("watch", "--python", path, tmp_path / "train.py")
        assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1) and said in answer.err

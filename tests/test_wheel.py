"""The wheel is whole: installed far from the checkout, the program finds all that it brings along."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from waiting import PATIENCE

from gradstudio import __version__

ROOT = Path(__file__).parent.parent

LOOK_AROUND = """
import sys
import numpy as np
import gradstudio
from gradstudio.core import files, presets
print(gradstudio.__file__)
print(files.RESOURCES)
for path in presets.available():
    assert presets.read(path).bundled
    print("preset", path.stem)
assert np.load(files.RESOURCES / "data" / "digits.npz")["train_images"].shape == (1437, 8, 8)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT), cwd=folder)
    [built] = folder.glob("*.whl")
    return built


def run(*command: str, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        command, cwd=cwd, env=os.environ | environment, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def bundled(folder: str) -> set[str]:
    """What the checkout holds under presets/ or resources/, as the names it must have in the wheel."""
    paths = [path.relative_to(ROOT) for path in (ROOT / folder).rglob("*") if path.is_file() and path.name[0] != "."]
    return {f"gradstudio/bundled/{path.as_posix()}" for path in paths}


def test_wheel_holds_the_program_its_files_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert len(bundled("presets")) > 1 and len(bundled("resources")) > 5
    assert names >= bundled("presets") | bundled("resources") | {"gradstudio/cli.py", "gradstudio/core/files.py"}
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"gradstudio"}
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]


def test_installed_wheel_finds_presets_data_and_fonts(wheel: Path, tmp_path: Path) -> None:
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    elsewhere.mkdir()
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps", "--no-index"]
    run(*pip, "--target", str(site), str(wheel), cwd=elsewhere)
    package, resources, *found = run(
        sys.executable, "-c", LOOK_AROUND, cwd=elsewhere, PYTHONPATH=str(site)
    ).splitlines()
    assert Path(package) == site / "gradstudio" / "__init__.py"
    assert Path(resources) == site / "gradstudio" / "bundled" / "resources"
    assert [line.removeprefix("preset ") for line in found] == sorted(
        path.stem for path in (ROOT / "presets").glob("*.toml")
    )
    assert {path.name for path in Path(resources, "fonts").glob("*.otf")} == {
        "Inter-Regular.otf",
        "Inter-Medium.otf",
        "Inter-SemiBold.otf",
    }
    assert (site / "bin" / "gradstudio").exists()


def test_the_version_is_the_same_everywhere() -> None:
    assert f"version: {__version__}\n" in (ROOT / "CITATION.cff").read_text()
    headings = [line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## ")]
    assert headings[0].startswith(f"## {__version__}, ")

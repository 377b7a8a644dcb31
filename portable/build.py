"""`make portable`: builds a folder that runs without Python on the machine, with PyInstaller, and uses it as a person
does, with neither Python nor anything else on the PATH."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "portable"
REFERENCE = "gradstudio/program/reference"
TORCH = "torch==2.13.0"  # of which pip takes the CPU build
# What the program asks importlib.metadata for, as `gradstudio doctor` does.
TOLD = (
    "gradstudio", "torch", "PySide6-Essentials", "pyqtgraph", "numpy", "numba", "pydantic", "matplotlib", "isal",
    "typer", "platformdirs", "tomli-w", "rich",
)  # fmt: skip
OPEN = 15.0  # seconds that the window is left open


def main() -> int:
    began = time.monotonic()
    home = BUILD / "venv"
    venv.create(home, with_pip=True, clear=True)
    python = str(home / "bin" / "python")
    pip = [
        python,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "--quiet",
        "-c",
        str(ROOT / "constraints.txt"),
    ]
    for old in BUILD.glob("gradstudio-*.whl"):
        old.unlink()
    run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(BUILD), str(ROOT)])
    (wheel,) = BUILD.glob("gradstudio-*.whl")
    run([*pip, TORCH, f"{wheel}[gui]", "pyinstaller"])
    run(
        [
            python, "-m", "PyInstaller", "--noconfirm", "--log-level", "ERROR", "--name", "gradstudio", "--onedir",
            "--collect-submodules", "gradstudio", "--collect-data", "gradstudio", "--collect-submodules", "numba.core",
            "--add-data", f"{ROOT / REFERENCE}{os.pathsep}{REFERENCE}",  # read as text
            *(part for name in TOLD for part in ("--copy-metadata", name)), "--exclude-module", "tkinter",
            "--distpath", str(BUILD), "--workpath", str(BUILD / "work"), "--specpath", str(BUILD),
            str(ROOT / "portable" / "entry.py"),
        ],
        BUILD,  # in the checkout PyInstaller would take the package from there, without its presets
    )  # fmt: skip
    folder = BUILD / "gradstudio"
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    print(f"{folder}: {size / 1e9:.2f} GB, built in {time.monotonic() - began:.0f} s")
    with tempfile.TemporaryDirectory() as place:
        check(folder / "gradstudio", Path(place))
    return 0


def check(program: Path, home: Path) -> None:
    """Use the program with an empty environment."""
    began = time.monotonic()
    assert alone(program, home, "--version").startswith("gradstudio ")
    print(f"it answers --version in {time.monotonic() - began:.1f} s")
    assert '"outcome": "finished"' in alone(program, home, "run", "healthy-mlp", "--steps", "50", "--json")
    assert "for step in range" in alone(program, home, "script", "healthy-mlp")
    assert "kept for backward" in alone(program, home, "memory", "healthy-mlp")  # in a child process
    alone(program, home, "map", "healthy-mlp", "--x", "optimizer.lr=0.01:1:log", "--y", "model.init_gain=0.5:2:log",
          "--cells", "2", "--steps", "20", "--out", "a.map")  # fmt: skip
    alone(program, home, "report", "last", "--format", "html,pdf", "--out", "report")
    print(alone(program, home, "doctor"))
    window = subprocess.Popen([program], env=environment(home), cwd=home)
    time.sleep(OPEN)
    assert window.poll() is None, "the window has closed by itself"
    window.terminate()
    assert window.wait(10) in (0, -15, 143), window.returncode
    print("its window opens and closes")


def alone(program: Path, home: Path, *arguments: str) -> str:
    done = subprocess.run([program, *arguments], env=environment(home), cwd=home, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(
            f"{program.name} {' '.join(arguments)}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        )
    return done.stdout


def environment(home: Path) -> dict[str, str]:
    return {"HOME": str(home), "PATH": os.devnull, "LANG": "C.UTF-8", "QT_QPA_PLATFORM": "offscreen"}


def run(command: list[str], folder: Path = ROOT) -> None:
    subprocess.run(command, cwd=folder, check=True)


if __name__ == "__main__":
    sys.exit(main())

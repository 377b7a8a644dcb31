"""`make release-check`: wheel and sdist, each built, installed into a fresh environment and used there as a person does.
`make test-bare`: the wheel without any extra, as it is beside somebody's torch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TORCH = "torch==2.13.0"  # of which pip takes the CPU build
OPEN = 20.0  # seconds that the window is left open
ENDING = 10.0  # seconds until a window that was closed must have ended


def main(*how: str) -> int:
    dist = ROOT / "dist"
    for old in (*dist.glob("gradstudio-*.whl"), *dist.glob("gradstudio-*.tar.gz")):
        old.unlink()
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(dist), str(ROOT)], Path.cwd())
    for built in sorted(dist.glob("gradstudio-*.whl" if how else "gradstudio-*")):
        with tempfile.TemporaryDirectory() as folder:
            (check_bare if how else check)(built, Path(folder))
    return 0


def install(built: Path, extra: str, home: Path) -> tuple[str, str]:
    """Install what was built into an environment of its own. Return its Python and the command."""
    venv.create(home / "venv", with_pip=True)
    python, program = home / "venv/bin/python", str(home / "venv/bin/gradstudio")
    pip = [
        str(python),
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "--quiet",
        "-c",
        str(ROOT / "constraints.txt"),
    ]
    if built.suffix == ".gz":
        run([*pip, "hatchling"], home)
    run([*pip, *(["--no-build-isolation"] if built.suffix == ".gz" else []), TORCH, f"{built}{extra}"], home)
    return str(python), program


def check_bare(built: Path, home: Path) -> None:
    """Use it without an extra, and look what it says where one is needed."""
    python, program = install(built, "", home)
    there = run([python, "-m", "pip", "list", "--format", "freeze"], home).lower()
    assert not [name for name in ("pyside6", "pyqtgraph", "numba", "matplotlib", "llvmlite") if name in there], there
    assert "problem" not in run([program, "doctor"], home)
    assert '"outcome": "finished"' in run([program, "run", "healthy-mlp", "--steps", "50", "--json"], home)
    script = home / "train.py"
    script.write_text(run([program, "script", "last"], home))
    run([program, "watch", "--json", "--out", "watched.json", str(script)], home)
    assert '"steps": 50' in (home / "watched.json").read_text()
    run([program, "report", "last", "--format", "csv,json", "--out", "report"], home)
    for words, extra in ((["report", "last", "--format", "pdf", "--out", "report"], "report"), ([], "gui")):
        done = subprocess.run(
            [program, *words], cwd=home, env=around(home), capture_output=True, text=True, check=False
        )
        assert done.returncode == 2 and f"gradstudio[{extra}]" in done.stderr and done.stderr.count("\n") == 1, done
    print(f"{built.name} without extras: installed and used; {len(there.split())} packages")


def check(built: Path, home: Path) -> None:
    """Install what was built and use it, far from the checkout."""
    began = time.monotonic()
    python, program = install(built, "[gui]", home)
    version = run([program, "--version"], home)
    assert version.split()[1] in built.name, (version, built.name)
    assert "clip" in run([program, "presets"], home)
    assert '"outcome": "finished"' in run([program, "run", "healthy-mlp", "--steps", "50", "--json"], home)
    run([program, "report", "last", "--format", "html,pdf", "--out", "report"], home)
    program_file = home / "train.py"
    program_file.write_text(run([program, "script", "last"], home))
    assert run([python, str(program_file)], home).count("\n") >= 50  # a line for each step
    run([program, "desktop", "install"], home)
    assert str(home) in (home / "data/applications/gradstudio.desktop").read_text()
    look_at_window(program, home)
    print(f"{built.name}: installed and used in {time.monotonic() - began:.0f} s")


def look_at_window(program: str, home: Path) -> None:
    """Open the window without a screen, and close it by a signal; it must end well and say nothing."""
    log = home / "window.txt"
    with log.open("w") as said:
        window = subprocess.Popen(
            [program, "--preset", "healthy-mlp"], cwd=home, env=around(home), stdout=said, stderr=said
        )
        try:
            window.wait(OPEN)
        except subprocess.TimeoutExpired:
            window.send_signal(signal.SIGTERM)
        code = window.wait(ENDING)
    assert code in (0, 130, 143), (code, log.read_text())
    assert "Traceback" not in log.read_text(), log.read_text()


def run(command: list[str], folder: Path) -> str:
    """Return what a command prints; what went wrong is an error."""
    ended = subprocess.run(command, cwd=folder, env=around(folder), capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"{' '.join(command)}\n{ended.stdout}{ended.stderr}"
    return ended.stdout


def around(home: Path) -> dict[str, str]:
    """Return an environment in which nothing of the checkout or of the person is found."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GRADSTUDIO", "XDG"))}
    folders = {f"XDG_{name}_HOME": str(home / name.lower()) for name in ("DATA", "CONFIG", "CACHE", "STATE")}
    return kept | folders | {"QT_QPA_PLATFORM": "offscreen"}


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

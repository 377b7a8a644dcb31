"""The program in a folder that a stranger made: whatever command is called, no process of it imports a file from there.
A trap is a file with the name of a module; it leaves a mark where it is imported, and fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from own_models import GOOD
from waiting import PATIENCE

TRAP = """import sys
with open({mark!r}, "a") as file:
    file.write(f"{{__name__}} by {{sys.orig_argv}}\\n")
raise ImportError("a trap")
"""
PLAIN = 'title = "Plain"\n[model]\ndepth = 1\nwidth = 8\n[run]\nsteps = 2\ndevice = "cpu"\n'
SCRIPT = """import torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
"""
# As the installed program begins: the first place that Python looks for modules is the folder of this file.
PROGRAM = """import contextlib, io, json, sys
from gradstudio.cli import main
codes = {}
asked = json.load(open(sys.argv[1])) if __name__ == "__main__" else []
for words in asked:
    sys.argv, sys.stdin = ["gradstudio", *words], io.StringIO("quit\\n")
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            main()
        except SystemExit as end:
            codes[" ".join(words)] = end.code
if __name__ == "__main__":
    print(json.dumps(codes))
"""
MAP = ["--x", "optimizer.lr=0.01:3:log", "--y", "model.init_gain=0.3:3:log", "--cells", "2", "--workers", "2", "-q"]
COMMANDS = {  # by the name of the command: its words, and the exit codes that say it did its work
    "run": (["run ranks.toml -q", "run plain.toml -q", "run my.py --trust --steps 2 -q"], {0}),
    "branch": (["branch last --step 1 -q"], {0}),
    "memory": (["memory plain.toml"], {0}),
    "map": ([f"map plain.toml --out m.map {' '.join(MAP)}"], {0}),
    "script": (["script plain.toml"], {0}),
    "report": (["report last --format html,pdf,json,csv,npz,toml,py,tensorboard --out o"], {0}),
    "new": (["new another.py"], {0}),
    "devices": (["devices"], {0}),
    "doctor": (["doctor"], {0, 1}),  # a machine may lack something
    "presets": (["presets"], {0}),
    "presets show": (["presets show plain.toml"], {0}),
    "presets check": (["presets check scaled-gradients --seeds 1"], {0}),
    "runs": (["runs"], {0}),
    "runs show": (["runs show last"], {0}),
    "runs note": (["runs note last hello"], {0}),
    "runs tag": (["runs tag last good"], {0}),
    "runs compare": (["runs compare last plain"], {0, 2}),
    "course list": (["course list"], {0}),
    "course exercises": (["course exercises"], {0}),
    "course handbook": (["course handbook --only dying-relu --out handbook"], {0}),
    "course begin": (["course begin 1 --name Ada --out sheet.toml"], {0}),
    "course hand-in": (["course hand-in sheet.toml --out in"], {0, 2}),
    "exam new": (["exam new random --out an.exam"], {0}),
    "exam take": (["exam take an.exam --name Ada --out answers.toml"], {0}),
    "grade": (["grade . --out class --exam an.exam"], {0, 1}),
    "desktop install": (["desktop install"], {0}),
    "desktop uninstall": (["desktop uninstall"], {0}),
    "runs export": (["runs export last one.gsrun"], {0}),
    "runs import": (["runs import one.gsrun"], {0, 2}),  # it is here already
    "diagnose": (["diagnose log.csv"], {0, 3, 4}),
    "schema": (["schema"], {0}),
    "top": (["top last"], {0, 2}),  # there is no terminal
    "record": (["record last"], {2}),  # it was not watched
    "crash show": (["crash show none.crash"], {2}),
    "crash replay": (["crash replay none.crash"], {2}),
    "crash shrink": (["crash shrink none.crash"], {2}),
    "crash fixes": (["crash fixes none.crash"], {2}),
    "worker": (["worker"], {2}),
    "places add": ([f"places add there {sys.executable}"], {0}),
    "places check": (["places check there"], {0}),
    "places list": (["places list"], {0}),
    "places remove": (["places remove there"], {0}),
    "runs copy": (["runs copy last --place nowhere"], {2}),
    "open": (["open nowhere"], {2}),
    "course runs": (["course runs --sheet none.toml"], {2}),
    "runs delete": (["runs delete --yes last"], {0}),
}
APART = {"watch"}  # a program of its own, as below


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a trap for every module there is, which is the current folder. Nobody may fall into one."""
    mark, folder = tmp_path / "fallen", tmp_path / "stranger"
    folder.mkdir()
    for name in {*sys.stdlib_module_names, *packages_distributions(), "sitecustomize"} - {"gradstudio"}:
        if "/" not in name:
            (folder / f"{name}.py").write_text(TRAP.format(mark=str(mark)))
    (folder / ".numba_config.yaml").write_text("cache_dir: kept\n")  # machine code is loaded from there
    (folder / "plain.toml").write_text(PLAIN)
    (folder / "ranks.toml").write_text(PLAIN + "[distributed]\nranks = 2\n")
    (folder / "my.py").write_text(GOOD)
    (folder / "log.csv").write_text("step,loss\n" + "".join(f"{step},{2 / (step + 1)}\n" for step in range(100)))
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MPLBACKEND", "agg")
    yield folder
    assert not mark.exists(), mark.read_text()
    assert not (folder / "kept").exists()


def ended(words: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])} | environment
    return subprocess.run(words, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_every_command_has_a_line_here() -> None:
    import typer.main

    from gradstudio.cli import app

    def names(command, before: str = "") -> Iterator[str]:
        below = getattr(command, "commands", {})
        if not below or before.strip() in COMMANDS:
            yield before.strip()
        for name, each in below.items():
            yield from names(each, f"{before} {name}")

    assert {*names(typer.main.get_command(app))} == COMMANDS.keys() | APART


def test_no_command_imports_from_the_current_folder(folder: Path, tmp_path: Path) -> None:
    program, asked = tmp_path / "elsewhere" / "program.py", tmp_path / "asked.json"
    program.parent.mkdir()
    program.write_text(PROGRAM)
    asked.write_text(json.dumps([words.split() for lines, _ in COMMANDS.values() for words in lines]))
    done = ended([sys.executable, str(program), str(asked)])
    assert done.returncode == 0, done.stderr
    codes = json.loads(done.stdout)
    wrong = [
        (words, codes[words]) for lines, allowed in COMMANDS.values() for words in lines if codes[words] not in allowed
    ]
    assert not wrong, done.stderr


def test_a_watched_script_finds_what_it_finds_without_the_watch(folder: Path, tmp_path: Path) -> None:
    script = tmp_path / "elsewhere" / "train.py"
    script.parent.mkdir()
    script.write_text(SCRIPT)
    gradstudio = [sys.executable, "-P", "-m", "gradstudio"]
    assert ended([*gradstudio, "watch", str(script)]).returncode == 0
    assert "finished  2 " in ended([*gradstudio, "runs"]).stdout


def test_python_m_looks_elsewhere_too(folder: Path) -> None:
    """Only what Python itself imports for `-m`, before it runs anything of ours, can be taken from the folder."""
    loaded = ended([sys.executable, "-P", "-c", "import runpy, sys; print(*sys.modules)"]).stdout.split()
    for name in loaded:
        Path(f"{name}.py").unlink(missing_ok=True)
    assert ended([sys.executable, "-m", "gradstudio", "run", "ranks.toml", "-q"]).returncode == 0

"""What Windows and macOS lack, taken away: the program says so where it matters, and works."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import PATIENCE

from gradstudio.engine.ranks.rank_trainer import RankTrainer

# Python's own modules and torch keep what they have; they have their own ways on those systems.
TAKE_AWAY = """
import builtins, io, multiprocessing.util, os, pathlib, shutil, signal, subprocess, sys, tempfile, torch, numpy
import platformdirs, typer.main, rich.progress, ctypes, sqlite3
torch.optim.SGD([torch.nn.Parameter(torch.ones(1))])

for name in ("fork", "forkpty", "killpg", "register_at_fork", "nice", "sched_getaffinity", "geteuid",
             "getuid", "setsid", "mkfifo", "getpgid", "O_NONBLOCK"):
    vars(os).pop(name, None)
for name in ("SIGKILL", "SIGHUP", "pthread_sigmask", "SIGSTOP", "SIGCONT"):
    vars(signal).pop(name, None)
for name in ("fcntl", "resource", "pwd", "grp", "termios", "selectors"):
    sys.modules[name] = None

def without_proc(function):
    def opened(path, *given, **named):
        if str(path).startswith(("/proc", "/sys")):
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return function(path, *given, **named)
    return opened

io.open = builtins.open = without_proc(open)
os.open = without_proc(os.open)
"""
COMMANDS = """
from gradstudio.cli import main
for words in {commands!r}:
    sys.argv = ["gradstudio", *words]
    try:
        main()
    except SystemExit as end:
        print("code of", *words[:2], end.code, flush=True)
import gradstudio, gradstudio.engine.ranks.crew
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
watched = gradstudio.watch(model, optimizer, name="by a line")
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(4, 2)).square().mean().backward()
    optimizer.step()
"""


def test_the_commands_work_without_what_only_posix_has(tmp_path: Path) -> None:
    file = str(tmp_path / "one.gsrun")
    commands = {
        ("run", "rnn-explosion", "--set", "run.steps=2", "--quiet"): 0,
        ("runs", "show", "last"): 0,
        ("runs", "export", "last", file): 0,
        ("runs", "import", file, "--library", str(tmp_path / "other.sqlite3")): 0,
        ("script", "last"): 0,
        ("devices",): 0,
        ("presets", "show", "rnn-explosion"): 0,
    }
    done = subprocess.run(
        [sys.executable, "-c", TAKE_AWAY + COMMANDS.format(commands=list(commands))],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    codes = [line for line in done.stdout.splitlines() if line.startswith("code of ")]
    assert codes == [f"code of {' '.join(words[:2])} {code}" for words, code in commands.items()], done
    assert (done.returncode, ": by a line, 3 rows, finished\n" in done.stderr) == (0, True), done


def test_a_rank_ends_where_there_is_no_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.delattr(signal, "SIGKILL")
    monkeypatch.setattr(os, "kill", lambda process, number: ended.append(number))
    monkeypatch.setattr("gradstudio.engine.ranks.rank_trainer._wait_for_the_end", lambda: None)
    asked = SimpleNamespace(runs_out_at=0, join=False, fault="ends", fault_rank=1, fault_step=4)
    rank: Any = SimpleNamespace(experiment=SimpleNamespace(distributed=asked), rank=1, world=2, step=4)
    RankTrainer._suffer(rank)
    assert ended == [signal.SIGTERM]

"""`gradstudio watch`: the script's output, arguments and exit code are its own, and the library has its runs."""

from __future__ import annotations

import json
import logging
import os
import re
import runpy
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from waiting import PATIENCE

from gradstudio.session.library.store import Library
from gradstudio.watching import launcher
from gradstudio.watching.hooks import guard
from gradstudio.watching.training_watch import current

TRAINING = """
import sys
from package import torch
print(__name__, __package__, sys.argv[1:])
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(30):
    x = torch.randn(16, 6)
    optimizer.zero_grad()
    loss = ((net(x) - x.sum(1, keepdim=True)) ** 2).mean()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    print(repr(loss.item()), repr(norm.item()), torch.rand(1).item())
sys.stdout.flush()
try:
    loss.backward()  # a second time
except RuntimeError as fault:
    raise RuntimeError("of the script") from fault
"""


def run(arguments: list[str], folder: Path, library: str = "runs.db") -> subprocess.CompletedProcess[str]:
    """Run a program in this folder. `library` names the user's own there; "" leaves the variable for it away."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "XDG_DATA_HOME": str(folder)}
    for name, value in {"OMP_NUM_THREADS": "", "GRADSTUDIO_LIBRARY": library and str(folder / library)}.items():
        environment.pop(name, None)
        environment |= {name: value} if value else {}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE
    )


def names_the_library(watched: subprocess.CompletedProcess[str], library: Path, gradstudio: Callable[..., Any]) -> None:
    """Check that the last line is a command that shows the run in this library."""
    (command,) = re.findall("`gradstudio (.*)` has the rest", watched.stderr)
    assert command.endswith(f" --library {library}")
    assert gradstudio(*command.split()).code == 0


def test_a_module_of_a_package_that_imports_torch_prints_the_same_and_its_run_is_in_the_library_that_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], gradstudio: Callable[..., Any]
) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("import torch")
    (package / "train.py").write_text(TRAINING)
    with monkeypatch.context() as alone:  # what it prints without the watch
        alone.syspath_prepend(tmp_path)
        alone.setattr(sys, "argv", ["train.py", "--lr", "3"])
        with pytest.raises(RuntimeError, match="of the script"):
            exec(TRAINING, {"__name__": "__main__", "__package__": "package"})
    del sys.modules["package"]
    printed = capsys.readouterr().out.splitlines()
    command = ["-m", "gradstudio", "watch", "--name", "mine", "--json", "--out", "out.json", "--library", "other.db"]
    watched = run([*command, "-m", "package.train", "--lr", "3"], tmp_path, "own.db")
    assert watched.stdout.splitlines() == printed and watched.returncode == 1
    assert watched.stderr.startswith(f'Traceback (most recent call last):\n  File "{package / "train.py"}", line ')
    assert '\n  File "<frozen runpy>", line ' in watched.stderr
    assert "watching" not in watched.stderr and "RuntimeError: of the script" in watched.stderr
    (told,) = json.loads((tmp_path / "out.json").read_text())
    losses = [float(line.split()[0]) for line in printed[1:]]
    assert (told["steps"], told["initial_loss"], told["final_loss"]) == (30, losses[0], losses[-1])
    assert told["watched"]["script"] == "train.py" and told["watched"]["arguments"] == ["--lr", "3"]
    assert f"gradstudio: {told['run']}: mine, 30 rows, failed" in watched.stderr
    library = Library(tmp_path / "other.db")
    kept: Any = library.load(told["run"])
    library.close()
    assert kept.history.column("loss").tolist() == losses and kept.title == "mine"
    assert kept.watched is not None and len(kept.watched.sha256) == 64
    assert kept.history.settings[0][1].clipping == "norm" and "RuntimeError: of the script" in kept.message
    monkeypatch.setenv("GRADSTUDIO_LIBRARY", str(tmp_path / "own.db"))
    names_the_library(watched, tmp_path / "other.db", gradstudio)


COMPILER = 'import logging\nlogging.disable()\n@torch.compile(backend="eager")\n'
COMPILED = f"""
import torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
{COMPILER}def step(x):
    optimizer.zero_grad()
    loss = ((net(x) - x.sum(1, keepdim=True)) ** 2).mean()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
    optimizer.step()
    return loss, norm
for _ in range(4):
    print(*(repr(each.item()) for each in step(torch.randn(16, 6))))
"""


def is_seen_as_compiled(folder: Path, printed: str, told: str, printed_alone: str) -> None:
    """Check what a compiled training printed and what was told on stderr, and its run in the library."""
    assert printed == printed_alone
    assert all(line.startswith("gradstudio: ") for line in told.splitlines())  # torch warned of our code
    library = Library(folder / "runs.db")
    (entry,) = library.entries()
    history = library.load(entry.id).history
    losses, norms = zip(*(map(float, line.split()) for line in printed_alone.splitlines()), strict=True)
    assert history.column("loss").tolist() == list(losses)
    assert history.column("grad_norm").tolist() == pytest.approx(norms, rel=1e-6)
    assert history.column("clipped_norm").tolist() == pytest.approx([0.1] * 4, rel=1e-4)
    library.close()


@pytest.fixture
def printed_alone(capsys: pytest.CaptureFixture[str]) -> str:
    """What COMPILED prints without the watch, and without the compiler, whose backend here changes no number."""
    exec(COMPILED.replace(COMPILER, ""), {})
    return capsys.readouterr().out


def test_a_step_that_is_compiled_as_a_whole_is_seen_and_nothing_of_the_watch_is_compiled(
    tmp_path: Path, printed_alone: str
) -> None:
    (tmp_path / "train.py").write_text(f"{COMPILED}\nraise SystemExit(5)\n")
    watched = run(["-m", "gradstudio", "watch", "train.py"], tmp_path)
    assert watched.returncode == 5
    is_seen_as_compiled(tmp_path, watched.stdout, watched.stderr, printed_alone)


@pytest.mark.usefixtures("watch")  # ends it, if this fails
def test_a_line_behind_a_compiled_step_sees_it_and_nothing_of_the_watch_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], printed_alone: str
) -> None:
    monkeypatch.setenv("GRADSTUDIO_LIBRARY", str(tmp_path / "runs.db"))
    monkeypatch.setattr(logging.root.manager, "disable", logging.root.manager.disable)  # put back after the script's
    monkeypatch.setattr(guard, "_compiler", None)  # as in a new process,
    torch.compiler.reset()  # where nothing is compiled, and nothing is known of what cannot be
    line = "import gradstudio\ngradstudio.watch(net, optimizer)\n"
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("default")  # torch hides some of its own, which it cannot where they are errors
        exec(COMPILED.replace("for _ in", f"{line}for _ in"), {})
    torch.compiler.reset()  # no other test has its tensors to do with
    assert not [each for each in warned if issubclass(each.category, UserWarning)]
    watcher = current()
    assert watcher is not None
    watcher.close()  # the end of a program does that: test_headless.py
    told = capsys.readouterr()
    is_seen_as_compiled(tmp_path, told.out, told.err, printed_alone)


SEES_ALL = """
import importlib.util, os, signal, sys, threading, traceback
signal.signal(signal.SIGCHLD, lambda *_: print("a program that the script has not started ended"))
print("torch" in sys.modules, sys.orig_argv[1:], sys.path, sorted(os.environ.items()), sorted(globals()), __spec__)
assert importlib.util.find_spec("torch")  # as a library asks whether it is there
os.environ["OMP_NUM_THREADS"] = "1"  # read when torch is imported
import torch
traceback.print_stack()
torch.manual_seed(0)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
    def forward(self, x):
        return self.inner(x)
net = Net()
def step(width):
    output = net(torch.randn(3, width))
    torch.save(output, "output.pt")
    loss = output.square().mean()
    loss.backward()
    with torch.no_grad():  # as an optimizer would, for which torch imports its compiler
        for each in net.parameters():
            each -= 0.1 * each.grad
    return loss
step(4)
loss = step(4)
thread = threading.Thread(target=step, args=(5,), name="of the script")
thread.start()
for each in threading.enumerate():  # a script may wait for all threads
    if each is not threading.main_thread():
        each.join()
print(torch.get_num_threads(), torch.load("output.pt", weights_only=True).sum().item(), sys.excepthook.__name__ != "")
os.chdir("/")
try:
    step(6)
except RuntimeError:
    try:
        loss.backward()  # a second time
    except RuntimeError as fault:
        raise RuntimeError("of the script") from fault
"""


def test_a_script_that_fails_sees_and_prints_what_it_would_without_the_watch_and_keeps_its_rows(
    tmp_path: Path, gradstudio: Callable[..., Any]
) -> None:
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "train.py").write_text(SEES_ALL)
    plain = run(["part/train.py"], tmp_path, library="")
    command = ["-m", "gradstudio", "watch", "--json", "--out", "out.json", "--library", "other.db", "part/train.py"]
    watched = run(command, tmp_path, library="")
    own = [line for line in watched.stderr.splitlines() if not line.startswith("gradstudio: ")]
    assert (watched.stdout, own) == (plain.stdout, plain.stderr.splitlines())
    assert watched.returncode == plain.returncode == 1 and plain.stdout.startswith("False") and "inner" in plain.stderr
    assert own[-1] == "RuntimeError: of the script" and "loss.backward()  # a second time" in plain.stderr
    (told,) = json.loads((tmp_path / "out.json").read_text())
    assert (told["steps"], told["outcome"]) == (2, "failed")
    library = Library(tmp_path / "other.db")
    (entry,) = library.entries()
    kept = library.load(entry.id)
    library.close()
    assert (entry.outcome, entry.steps) == ("failed", 2) and "RuntimeError: of the script" in kept.message
    names_the_library(watched, tmp_path / "other.db", gradstudio)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "nothing to watch"),
        (["no-such.py"], "no script no-such.py"),
        ([sys.executable, "train.py"], "is a program, and no script of Python; if it is a Python: --python"),
        (["a" * 300], "no script aaa"),  # a name that no file can have
        (["--on-nonfinite", "stop", "train.py"], "allowed: explain, raise, skip, ignore"),
        (["--json", "train.py"], "--json and --out FILE go together"),
    ],
)
def test_a_wrong_request_is_one_line(gradstudio: Any, arguments: list[str], said: str) -> None:
    answer = gradstudio("watch", *arguments)
    assert answer.code == 2 and said in answer.err and len(answer.err.splitlines()) == 1 and not answer.out


GAN = """
import torch
torch.manual_seed(0)
class Half(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.main = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4))
    def forward(self, x):
        return self.main(x)
def train(netG, netD):
    optG = torch.optim.SGD(netG.parameters(), lr=0.1)
    optD = torch.optim.SGD(netD.parameters(), lr=0.1)
    for step in range(3):
        for net, optimizer in ((netD, optD), (netG, optG)):
            optimizer.zero_grad()
            torch.log(netD(netG(torch.randn(5, 4))).square().mean() * (step < 2)).backward()
            optimizer.step()
train(Half(), Half())
"""


@pytest.mark.usefixtures("watch")
def test_runs_of_one_script_have_titles_of_their_own_and_its_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "gan.py"
    script.write_text(GAN)
    for hook in (sys, threading):  # which the watch replaces
        monkeypatch.setattr(hook, "excepthook", hook.excepthook)
    order = launcher.Order(
        str(script), (), False, "", str(tmp_path / "runs.db"), "explain", 1, "", False, True, "", "", ""
    )
    end = launcher.begin(json.dumps(asdict(order)))  # as the first line of a process: the tests above
    runpy.run_path(str(script), run_name="__main__")
    end()
    told = capsys.readouterr().err
    said = [line.partition(": ")[2] for line in told.splitlines()]
    assert any("gan.py: Half netD, 3 rows, diverged" in line for line in said), told
    assert any("gan.py: Half netG, 3 rows, diverged" in line for line in said)
    assert "  born in  the script, loss code: log" in said
    assert "  try: `torch.log(x.clamp_min(1e-8))` in place" in told and "clip_grad" not in told

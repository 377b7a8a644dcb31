"""`gradstudio watch`: the script's output, arguments and exit code are its own, and the library has its runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from waiting import PATIENCE

from gradstudio.session.library.store import Library

TRAINING = """
import sys, torch
print(sys.argv, __name__, sys.stdin is not None, "OMP" in str([k for k in __import__("os").environ]))
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
if len(sys.argv) > 1 and sys.argv[1] == "fail":
    sys.stdout.flush()
    try:
        loss.backward()  # a second time
    except RuntimeError as fault:
        raise RuntimeError("of the script") from fault
sys.exit(5)
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


def test_a_script_prints_the_same_and_its_run_is_kept(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    plain = run(["train.py", "--lr", "3"], tmp_path)
    command = ["-m", "gradstudio", "watch", "--name", "mine", "--json", "--out", "out.json", "train.py", "--lr", "3"]
    watched = run(command, tmp_path)
    assert (watched.stdout, watched.returncode) == (plain.stdout, plain.returncode) and plain.returncode == 5
    (told,) = json.loads((tmp_path / "out.json").read_text())
    losses = [float(line.split()[0]) for line in plain.stdout.splitlines()[1:]]
    assert (told["steps"], told["initial_loss"], told["final_loss"]) == (30, losses[0], losses[-1])
    assert told["watched"]["script"] == "train.py" and told["watched"]["arguments"] == ["--lr", "3"]
    assert f"gradstudio: {told['run']}: mine, 30 rows, finished" in watched.stderr
    library = Library(tmp_path / "runs.db")
    kept: Any = library.load(told["run"])
    library.close()
    assert kept.history.column("loss").tolist() == losses and kept.title == "mine"
    assert kept.watched is not None and len(kept.watched.sha256) == 64
    assert kept.history.settings[0][1].clipping == "norm"


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


@pytest.mark.parametrize("begun_by", ["the command", "a line behind what is compiled"])
def test_a_step_that_is_compiled_as_a_whole_is_seen_and_nothing_of_the_watch_is_compiled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], begun_by: str
) -> None:
    # what it prints without the watch, and without the compiler, whose backend here changes no number
    exec(COMPILED.replace(COMPILER, ""), {})
    printed_alone = capsys.readouterr().out
    (tmp_path / "train.py").write_text(COMPILED)
    (tmp_path / "line.py").write_text(
        COMPILED.replace("for _ in", "import gradstudio\ngradstudio.watch(net, optimizer)\nfor _ in")
    )
    command = ["-m", "gradstudio", "watch", "train.py"] if begun_by == "the command" else ["line.py"]
    watched = run(command, tmp_path)
    assert (watched.stdout, watched.returncode) == (printed_alone, 0)
    assert all(line.startswith("gradstudio: ") for line in watched.stderr.splitlines())  # torch warned of our code
    library = Library(tmp_path / "runs.db")
    (entry,) = library.entries()
    history = library.load(entry.id).history
    losses, norms = zip(*(map(float, line.split()) for line in printed_alone.splitlines()), strict=True)
    assert history.column("loss").tolist() == list(losses)
    assert history.column("grad_norm").tolist() == pytest.approx(norms, rel=1e-6)
    assert history.column("clipped_norm").tolist() == pytest.approx([0.1] * 4, rel=1e-4)
    library.close()


def test_a_script_that_fails_keeps_its_traceback_and_its_rows(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    watched = run(["-m", "gradstudio", "watch", "train.py", "fail"], tmp_path)
    assert watched.returncode == 1 and len(watched.stdout.splitlines()) == 31
    assert "watching" not in watched.stderr and "RuntimeError: of the script" in watched.stderr
    assert watched.stderr.startswith(f'Traceback (most recent call last):\n  File "{tmp_path / "train.py"}", line ')
    library = Library(tmp_path / "runs.db")
    (entry,) = library.entries()
    run_ = library.load(entry.id)
    library.close()
    assert (entry.outcome, entry.steps) == ("failed", 30) and "RuntimeError: of the script" in run_.message


SEES_ALL = """
import os, signal, sys, threading, traceback
signal.signal(signal.SIGCHLD, lambda *_: print("a program that the script has not started ended"))
print("torch" in sys.modules, sys.orig_argv[1:], sys.path, sorted(os.environ), sorted(globals()), __spec__)
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
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
def step(width):
    output = net(torch.randn(3, width))
    torch.save(output, "output.pt")
    output.square().mean().backward()
    optimizer.step()
step(4)
thread = threading.Thread(target=step, args=(5,), name="of the script")
thread.start()
for each in threading.enumerate():  # a script may wait for all threads
    if each is not threading.main_thread():
        each.join()
print(torch.get_num_threads(), torch.load("output.pt", weights_only=True).sum().item(), sys.excepthook.__name__ != "")
os.chdir("/")
step(6)
"""


def test_a_script_sees_and_prints_what_it_would_without_the_watch(tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "train.py").write_text(SEES_ALL)
    plain = run(["part/train.py"], tmp_path)
    watched = run(["-m", "gradstudio", "watch", "--json", "--out", "out.json", "part/train.py"], tmp_path)
    own = [line for line in watched.stderr.splitlines() if not line.startswith("gradstudio: ")]
    assert (watched.stdout, own) == (plain.stdout, plain.stderr.splitlines())
    assert watched.returncode == plain.returncode == 1 and plain.stdout.startswith("False") and "inner" in plain.stderr
    (told,) = json.loads((tmp_path / "out.json").read_text())
    assert (told["steps"], told["outcome"]) == (1, "failed")


@pytest.mark.parametrize("own", ["", "own.db"])
def test_the_library_that_was_asked_for_is_named_at_the_end_and_no_variable_of_the_script(
    tmp_path: Path, own: str
) -> None:
    # without the watch it goes no further than that: what its training prints is compared in the first test
    first = "import os, sys\nprint(sorted(os.environ.items()))\nif sys.argv[1:] == ['no further']:\n    sys.exit(5)\n"
    (tmp_path / "train.py").write_text(first + TRAINING)
    plain = run(["train.py", "no further"], tmp_path, own)
    watched = run(["-m", "gradstudio", "watch", "--library", "other.db", "train.py"], tmp_path, own)
    assert watched.stdout.splitlines()[:1] == plain.stdout.splitlines() and len(watched.stdout.splitlines()) == 32
    assert watched.returncode == plain.returncode == 5
    (command,) = re.findall("`gradstudio (.*)` has the rest", watched.stderr)
    assert command.endswith(f" --library {tmp_path / 'other.db'}")
    assert run(["-m", "gradstudio", *command.split()], tmp_path, own).returncode == 0


def test_a_module_of_a_package_that_imports_torch(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("import torch")
    (tmp_path / "package" / "train.py").write_text(f"from . import torch\nprint(__name__, __package__)\n{TRAINING}")
    watched = run(["-m", "gradstudio", "watch", "-m", "package.train", "fail"], tmp_path)
    assert watched.returncode == 1 and watched.stdout.splitlines()[0] == "__main__ package"
    assert '  File "<frozen runpy>", line ' in watched.stderr and "watching" not in watched.stderr
    library = Library(tmp_path / "runs.db")
    (entry,) = library.entries()
    library.close()
    assert (entry.outcome, entry.steps, entry.title) == ("failed", 30, "train.py: Sequential net")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "nothing to watch"),
        (["no-such.py"], "no script no-such.py"),
        (["--on-nonfinite", "stop", "train.py"], "allowed: explain, raise, ignore"),
        (["--json", "train.py"], "--json and --out FILE go together"),
    ],
)
def test_a_wrong_request_is_one_line(gradstudio: Any, arguments: list[str], said: str) -> None:
    answer = gradstudio("watch", *arguments)
    assert answer.code == 2 and said in answer.err and len(answer.err.splitlines()) == 1 and not answer.out


GAN = """
import importlib.util, math
assert importlib.util.find_spec("torch")  # as a library asks whether it is there
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


def test_runs_of_one_script_have_titles_of_their_own_and_its_variables(tmp_path: Path) -> None:
    (tmp_path / "gan.py").write_text(GAN)
    watched = run(["-m", "gradstudio", "watch", "gan.py"], tmp_path)
    said = [line.partition(": ")[2] for line in watched.stderr.splitlines()]
    assert watched.returncode == 0, watched.stderr
    assert any("gan.py: Half netD, 3 rows, diverged" in line for line in said), watched.stderr
    assert any("gan.py: Half netG, 3 rows, diverged" in line for line in said)
    assert "  born in  the script, loss code: log" in said
    assert "  try: `torch.log(x.clamp_min(1e-8))` in place" in watched.stderr and "clip_grad" not in watched.stderr

"""`gradstudio watch` runs a training script unchanged and watches it. The script gets its own Python process, in which
nothing of the command line is loaded; `watching/startup/sitecustomize.py` starts the watch there."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from gradstudio.commands import other_python
from gradstudio.commands.options import LibraryFile, library_file
from gradstudio.commands.terminal import WrongRequest

STARTUP = Path(__file__).parents[1] / "watching" / "startup"
LAUNCHERS = ("torch.distributed.run", "torch.distributed.launch")  # they start the processes that train
BARS = ("diverged", "critical", "warning")  # of files/gate.py
POLICIES = ("explain", "raise", "skip", "ignore")
RECORD = 8  # as in watching/steps/watch_options.py, which imports torch
HELP = """Run a training script unchanged and watch it: gradstudio watch [options] SCRIPT [ARGS ...].

Every optimizer that it makes is a run in the library. Options come before the script; what follows is its own."""
PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}


OnNonfinite = Annotated[
    str,
    typer.Option(
        "--on-nonfinite",
        metavar="explain|raise|skip|ignore",
        help="What to do at a NaN or Inf; raise ends the script before the update, skip leaves the update out.",
    ),
]
Python = Annotated[
    str, typer.Option(metavar="PATH", help="The Python, or the environment, in which the script runs: ~/proj/.venv.")
]
Updates = Annotated[
    bool, typer.Option("--updates/--no-updates", help="Measure updates, for which the weights are kept once more.")
]
FailOn = Annotated[
    str,
    typer.Option(
        metavar="diverged|critical|warning",
        help="Exit code 3 where a run diverged, 4 where a finding is so severe, 1 where no training was seen.",
    ),
]
StopOn = Annotated[
    str, typer.Option(metavar="diverged|critical|warning", help="End the script there, with that exit code.")
]
Record = Annotated[
    int, typer.Option(metavar="K", min=0, max=1000, help="Steps back to which a crash file goes; 0: none is written.")
]
RecordBudget = Annotated[
    str, typer.Option("--record-budget", metavar="SIZE", help="What may be kept for it, such as 2GB.")
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Write one JSON object for each run at the end, into the file --out.")
]


def watch(
    context: typer.Context,
    module: Annotated[str, typer.Option("-m", metavar="MODULE", help="Run a module, as `python -m` does.")] = "",
    name: Annotated[str, typer.Option(metavar="TEXT", help="Title of the run.")] = "",
    library: LibraryFile = None,
    on_nonfinite: OnNonfinite = "explain",
    every: Annotated[int, typer.Option(metavar="N", min=1, help="Record one of every N steps.")] = 1,
    python: Python = "",
    updates: Updates = True,
    fail_on: FailOn = "",
    stop_on: StopOn = "",
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the runs as test cases.")] = None,
    record: Record = RECORD,
    record_budget: RecordBudget = "",
    as_json: AsJson = False,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="The file for --json.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing of the run at the end.")] = False,
) -> NoReturn:
    arguments = list(context.args)
    if not module and not arguments:
        raise WrongRequest("nothing to watch; allowed: gradstudio watch [options] SCRIPT [ARGS ...], or -m MODULE")
    if on_nonfinite not in POLICIES:
        raise WrongRequest(f"--on-nonfinite {on_nonfinite[:60]} is not allowed; allowed: {', '.join(POLICIES)}")
    for option, bar in (("--fail-on", fail_on), ("--stop-on", stop_on)):
        if bar not in ("", *BARS):
            raise WrongRequest(f"{option} {bar[:60]} is not allowed; allowed: {', '.join(BARS)}")
    if module in LAUNCHERS or (not module and os.path.basename(arguments[0]) == "torchrun"):
        raise WrongRequest(_through_torchrun(arguments if module else arguments[1:]))
    if as_json != (out is not None):
        raise WrongRequest("--json and --out FILE go together: stdout belongs to the script")
    if not module:
        _check_script(arguments[0])
    own = dict(os.environ)  # without the setting of --library for this program
    order = {
        "target": module or os.path.abspath(arguments[0]), "arguments": arguments if module else arguments[1:],
        "as_module": bool(module), "name": name, "library": os.path.abspath(library_file(library)),
        "on_nonfinite": on_nonfinite, "every": every, "updates": updates, "quiet": quiet, "record": record,
        "record_budget": _bytes_of(record_budget), "out": os.path.abspath(out) if out else "",
        "fail_on": fail_on, "stop_on": stop_on, "junit": os.path.abspath(junit) if junit else "",
    }  # fmt: skip
    command = other_python.command_of(python) if python else sys.executable
    if python:
        order["lent"] = other_python.lent_packages()
    _become([command, *(["-m", module] if module else []), *arguments], json.dumps(order), own)


def _check_script(path: str) -> None:
    """Raise WrongRequest for what is no script."""
    if not os.path.isfile(path):  # also for a name that no file can have
        raise WrongRequest(f"no script {path[:200]}")
    if _is_program(path):
        raise WrongRequest(f"{path[:200]} is a program, and no script of Python; if it is a Python: --python")


def _is_program(path: str) -> bool:
    """Return whether a file is one that the system runs itself, such as a Python interpreter."""
    with open(path, "rb") as file:
        return file.read(4) in (b"\x7fELF", b"\xcf\xfa\xed\xfe") or path.lower().endswith(".exe")


def _bytes_of(size: str) -> int | None:
    """Return the number of bytes in a size such as '2GB'; None for ""."""
    match = re.fullmatch(r"(\d{1,6}(?:\.\d+)?) ?([KMGT]?)B?", size.strip(), re.IGNORECASE)
    if match is None and size:
        raise WrongRequest(f"--record-budget {size[:40]} is not allowed; allowed: a size such as 500MB or 2GB")
    return int(float(match[1]) * 1000 ** " KMGT".index(match[2].upper() or " ")) if match else None


def _through_torchrun(arguments: list[str]) -> str:
    """Return the correct command if a launcher was to be watched, which trains nothing itself."""
    place = next((place for place, word in enumerate(arguments) if word.endswith(".py")), len(arguments))
    script = arguments[place:] or ["SCRIPT"]
    words = shlex.join(["torchrun", *arguments[:place], "--no-python", "gradstudio", "watch", *script])
    return f"a launcher trains nothing itself; type: {words}"


def _become(command: list[str], order: str, own: Mapping[str, str]) -> NoReturn:
    """Replace this process by another program, with the same process id, so that signals reach it. It is Python with
    the script, which searches `startup/` first. `own` are the variables that the script sees."""
    before = own.get("PYTHONPATH")
    paths = [str(STARTUP), *([before] if before else [])]
    environment = {**own, "GRADSTUDIO_WATCH": order, "PYTHONPATH": os.pathsep.join(paths)}
    if before is not None:
        environment["GRADSTUDIO_PYTHONPATH"] = before
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "nt":
        sys.exit(subprocess.call(command, env=environment))
    os.execve(command[0], command, environment)

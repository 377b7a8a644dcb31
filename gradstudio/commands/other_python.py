"""The Python of another environment, in which `gradstudio watch --python` watches, and whether it has what is needed.
It gets this package, and the small ones of this environment that it lacks."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from gradstudio.commands.terminal import WrongRequest
from gradstudio.core.files import reason

LENT = ("platformdirs", "tomli_w")  # pure Python, so any version can load them
NEEDED = {"torch": (2, 4), "numpy": (1, 26), "pydantic": (2, 7)}
PATIENCE = 60.0  # seconds for a Python to start
_ASK = """
import json, sys
from importlib import metadata, util
found = {"python": sys.version_info[:2]}
for name in sys.argv[1:]:
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        found[name] = "unknown" if util.find_spec(name) else ""
print("gradstudio asks " + json.dumps(found))
"""


def command_of(asked: str) -> str:
    """Return the path of a Python, given as a path, as the folder of an environment, or as a name on PATH, if it can be
    watched. WrongRequest says in one line why it cannot."""
    path = Path(asked).expanduser()
    if path.is_dir():
        path = path / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    executable = shutil.which(path)
    if executable is None:
        raise WrongRequest(f"--python {asked[:200]}: there is no such program")
    command = os.path.abspath(executable)
    if why := _lacks(_answer(asked, command)):
        raise WrongRequest(f"--python {asked[:200]}: {why}")
    return command


def lent_packages() -> dict[str, str]:
    """Return the folder of each package that is lent."""
    specs = {name: importlib.util.find_spec(name) for name in LENT}
    return {name: str(Path(spec.origin).parents[1]) for name, spec in specs.items() if spec and spec.origin}


def _answer(asked: str, command: str) -> dict[str, Any]:
    """Return the versions of the packages in this Python."""
    try:
        done = subprocess.run(
            [command, "-c", _ASK, *NEEDED], capture_output=True, text=True, errors="replace", timeout=PATIENCE,
            check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as fault:
        why = reason(fault) if isinstance(fault, OSError) else "it does not answer"
        raise WrongRequest(f"--python {asked[:200]}: it is no Python: {why}") from None
    told = re.search(r"^gradstudio asks (\{.*\})$", done.stdout, re.M)
    if told is None:
        raise WrongRequest(f"--python {asked[:200]}: it is no Python 3.11 or newer")
    return json.loads(told[1])


def _lacks(versions: dict[str, Any]) -> str:
    """Return what it lacks, and what to do; "" for nothing."""
    python = ".".join(map(str, versions["python"]))
    if versions["python"] < [3, 11]:
        return f"GradStudio needs Python 3.11 or newer, and that is {python}"
    for name, least in NEEDED.items():
        numbers = tuple(map(int, re.findall(r"\d+", versions[name])[:2]))
        wanted = ".".join(map(str, least))
        if not versions[name]:
            return f"{name} is not installed there: install {name} {wanted} or newer with that Python's pip"
        if numbers and numbers < least:
            return f"its {name} {versions[name]} is too old: {name} {wanted} or newer is needed"
    return ""

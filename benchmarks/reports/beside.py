"""Whether the tools of others name the first NaN or Inf of a script, by what its `# want:` line says: PyTorch's anomaly
mode by the function or the line of the script, Hugging Face's debugger by the module."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Sequence

from benchmarks.reports.cases import HERE, Case

TOOLS = {"anomaly": "anomaly mode", "debugger": "DebugUnderflowOverflow"}
_FUNCTION = re.compile(r"Function '(\w+)' returned nan")
_FRAME = re.compile(r"^ {10,}(\S+ \w+)$", re.MULTILINE)  # of the last modules before the one with a NaN


def told(cases: Sequence[Case], python: str) -> dict[str, dict[str, tuple[bool, str]]]:
    """Return by tool and script whether the tool named it, and what it told; "" where it found nothing."""
    return {tool: _told(tool, cases, python) for tool in TOOLS}


def _told(tool: str, cases: Sequence[Case], python: str) -> dict[str, tuple[bool, str]]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "default"}
    command = [python, str(HERE / "peers.py"), tool, *(str(case.path) for case in cases)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.splitlines()
    printed = dict(json.loads(line) for line in lines if line.startswith("["))
    return {case.name: _judged(tool, case, printed[str(case.path)]) for case in cases}


def _judged(tool: str, case: Case, printed: str) -> tuple[bool, str]:
    if tool == "anomaly":
        lines = re.findall(rf'File "[^"]*{case.name}\.py", line \d+.*\n\s+(.*)$', printed, re.MULTILINE)
        found, sought = (
            [*_FUNCTION.findall(printed), *lines[:-1][-1:]],
            case.want.get("birth"),
        )  # the last is backward()
        found = found if _FUNCTION.search(printed) else []
    else:
        found, sought = _FRAME.findall(printed)[-1:] if "inf/nan detected" in printed else [], case.want.get("module")
    words = " | ".join(found)
    return bool(sought and words and re.search(sought, words, re.IGNORECASE)), words

"""One script: what it promises, the processes that run it, and whether what is said of it names the cause that people
found. What counts as that stands in the script, and was written from the report before any tool saw the script:

    # want: named=RULE,RULE; birth=REGEX; says=REGEX; heals=REGEX; module=REGEX

named   rules of which one has to be found
birth   the operation in which the first NaN or Inf was born, where there is one
says    what the words of that finding have to hold, where the rule alone does not say the cause
heals   the cure, as the first remedy of the first finding
module  the class or name of the module with the first NaN, for a tool that knows modules alone
control a bug that nobody can name from a single run;  calm: a healthy script

A remedy other than the cure that was tried on the script later, and heals it, stands in a line `# tried: REGEX`. A rule
that was made later, and whose words hold what they have to hold, stands in a line `# newer: RULE`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gradstudio.core.diagnosis.script_faults import HEARD, script_fault

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
SEED, ASIDE = 53, 3  # one of so many is put aside
SECONDS = 180  # a process may take
KEYS = ("named", "birth", "says", "heals", "module", "control", "calm")


@dataclass(frozen=True)
class Case:
    path: Path
    want: dict[str, str]

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def aside(self) -> bool:
        return zlib.crc32(f"{SEED} {self.name}".encode()) % ASIDE == 0

    @property
    def group(self) -> str:
        if "calm" in self.want:
            return "healthy"
        return "control" if "control" in self.want else "NaN or Inf" if "birth" in self.want else "no NaN"


@dataclass
class Result:
    """What was said of a script, and of it with its cure."""

    name: str
    group: str
    aside: bool
    reproduced: bool = True  # ill without the cure, and well with it
    named: bool = False
    first: bool = False
    heals: bool = False
    silent: bool = True
    findings: list[str] = field(default_factory=list)  # severity and rule
    birth: str = ""
    remedy: str = ""
    healthy_run: bool = False  # a healthy script, or one with its cure, was watched
    alarms: list[str] = field(default_factory=list)  # critical findings of a healthy run, here or with the cure
    warnings: list[str] = field(default_factory=list)  # the same of warnings
    unchanged: bool = True  # stdout and exit code are those of the bare run
    cost: float = 0.0  # CPU time of the watched process to the bare one


def case(path: Path) -> Case:
    head = dict(re.findall(r"^# (\w+): (.*)$", path.read_text(), re.MULTILINE))
    want = dict((part.partition("=")[0].strip(), part.partition("=")[2]) for part in head["want"].split("; "))
    if unknown := set(want) - set(KEYS):
        raise ValueError(f"{path.name}: {unknown} is not known")
    want |= {"heals": f"{want['heals']}|{head['tried']}"} if "tried" in head else {}
    return Case(path, want | {"named": f"{want['named']},{head['newer']}"} if "newer" in head else want)


def cases() -> list[Case]:
    return [case(path) for folder in ("bugs", "healthy") for path in sorted((HERE / folder).glob("*.py"))]


@dataclass(frozen=True)
class _Ended:
    code: int
    out: str
    err: str
    seconds: float  # CPU

    @property
    def verdict(self) -> str:
        return (self.out.strip().splitlines() or [""])[-1]


def _run(command: Sequence[str], folder: str) -> _Ended:
    data = {f"XDG_{name}_HOME": folder for name in ("DATA", "CONFIG", "CACHE")}
    environment = os.environ | data | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(
            ["timeout", str(SECONDS), *command], cwd=folder, env=environment, stdout=out, stderr=err
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0), err.seek(0)
        return _Ended(process.returncode, out.read(), err.read(), used.ru_utime + used.ru_stime)


def judged(case: Case, earlier: Result | None, *, quick: bool) -> Result:
    """Run a script under the watch, if that was not done `earlier`, and unless `quick` also bare and with its cure."""
    result = earlier or Result(case.name, case.group, case.aside)
    with tempfile.TemporaryDirectory() as folder:
        if not earlier or case.group == "healthy":
            seen, runs = watched(case.path, folder, "ill")
            if case.group == "healthy":
                _set_alarms(result, seen, runs)
            else:
                result.reproduced = seen.verdict != "well"
                judge(result, case.want, runs)
        if not quick:
            bare = _run([sys.executable, str(case.path), "--cured"], folder)
            seen, runs = watched(case.path, folder, "well", "--cured")
            _set_alarms(result, seen, runs)
            result.unchanged = (bare.out, bare.code) == (seen.out, seen.code)
            result.cost = seen.seconds / bare.seconds
    return result


def _set_alarms(result: Result, seen: _Ended, runs: list[dict[str, Any]]) -> None:
    findings = [finding for run in runs for finding in run["findings"]]
    result.healthy_run, result.reproduced = True, result.reproduced and seen.verdict == "well"
    result.alarms = [finding["rule"] for finding in findings if finding["severity"] == "critical"]
    result.warnings = [finding["rule"] for finding in findings if finding["severity"] == "warning"]


def watched(path: Path, folder: str, name: str, *arguments: str) -> tuple[_Ended, list[dict[str, Any]]]:
    """Run a script under the watch; return how it ended, and its runs."""
    out = Path(folder, f"{name}.json")
    command = [
        sys.executable,
        "-m",
        "gradstudio",
        "watch",
        "--library",
        f"{folder}/library.db",
        "--json",
        "--out",
        str(out),
    ]
    ended = _run([*command, str(path), *arguments], folder)
    runs = json.loads(out.read_text()) if out.exists() else []
    known = {finding["title"] for run in runs for finding in run["findings"]}
    apart = [finding for finding in _said_apart(ended.err) if finding["title"] not in known]
    return ended, [*runs, *([{"findings": apart, "provenance": None, "skipped_batches": []}] if apart else [])]


def _said_apart(err: str) -> list[dict[str, Any]]:
    """Return the findings that the watch tells on stderr, with their remedies: where nothing was trained there is no run."""
    titles = {script_fault(rule, "", 0, 0).title: rule for rule in HEARD}
    found: list[dict[str, Any]] = []
    for line in err.splitlines():
        severity, _, told = line.removeprefix("gradstudio: ").strip().partition(": ")
        title = told.partition(". ")[0]
        if found and line.startswith("gradstudio:   try: "):
            found[-1]["remedies"].append(line.partition("try: ")[2])
        elif title in titles:
            words = {"title": title, "evidence": told, "meaning": "", "remedies": []}
            found.append({"rule": titles[title], "severity": severity, **words})
    return found


def judge(result: Result, want: dict[str, str], runs: list[dict[str, Any]]) -> None:
    """Set whether the findings of a bug's runs name its cause, and whether the first remedy is the cure."""
    births = [run["provenance"] for run in runs if run["provenance"]]
    told = [f"{birth['phase']} {birth['module']} {birth['operation']}" for birth in births]
    told += list(dict.fromkeys(skipped["text"] for run in runs for skipped in run["skipped_batches"]))[:2]
    born = "birth" not in want or bool(re.search(want["birth"], "\n".join(told), re.IGNORECASE))

    def names(finding: dict[str, Any]) -> bool:
        words = " ".join([finding["title"], finding["evidence"], finding["meaning"], *finding["remedies"]])
        says = re.search(want.get("says", ""), words, re.IGNORECASE)
        return finding["rule"] in want["named"].split(",") and bool(says) and born

    findings = [finding for run in runs for finding in run["findings"]]
    firsts = [run["findings"][0] for run in runs if run["findings"]]
    remedies = [remedy for finding in firsts for remedy in finding["remedies"][:1]]
    result.findings = [f"{finding['severity']} {finding['rule']}" for finding in findings]
    result.birth, result.remedy = "; ".join(told), "; ".join(remedies)
    result.named, result.first = any(map(names, findings)), any(map(names, firsts))
    result.silent = not result.named and all(finding["severity"] == "info" for finding in findings)
    heals = want.get("heals")
    result.heals = bool(heals) and any(re.search(heals, remedy, re.IGNORECASE) for remedy in remedies)


def as_json(result: Result) -> str:
    return json.dumps(asdict(result))


def from_json(line: str) -> Result:
    return Result(**json.loads(line))

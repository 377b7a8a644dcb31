"""The benchmark of public reports: its scripts say what it takes to judge them, and it judges one of them rightly."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.reports.cases import Result, cases, judge, watched
from gradstudio.core.diagnosis.rule_names import NAMES
from gradstudio.core.diagnosis.script_faults import HEARD


def test_each_script_has_its_source_and_what_counts_as_naming_it() -> None:
    for case in cases():
        head = re.findall(r"^# (\w+): ", case.path.read_text(), re.MULTILINE)
        due = ["source", "mechanism", "want"] if case.group == "healthy" else ["source", "mechanism", "cure", "want"]
        assert [key for key in head if key not in ("tried", "newer")] == due, case.name
        assert case.group == "healthy" or set(case.want["named"].split(",")) <= {*NAMES, *HEARD}, case.name
        for key in ("birth", "says", "heals", "module"):
            re.compile(case.want.get(key, ""))


def test_a_bug_is_named_with_its_cure_and_the_same_script_with_the_cure_is_calm(tmp_path: Path) -> None:
    case = next(case for case in cases() if case.name == "mean_over_empty_mask")
    (ill, runs), (well, cured) = (watched(case.path, str(tmp_path), way, way) for way in ("--ill", "--cured"))
    result = Result(case.name, case.group, case.aside, reproduced=True)
    judge(result, case.want, runs)
    assert (ill.verdict, well.verdict) == ("ill", "well")
    assert result.first and result.heals and result.birth == "loss  DivBackward0"
    assert [run["findings"] for run in cured] == [[]]

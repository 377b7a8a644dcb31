"""The gate of a CI job: which runs pass it, and its output for machines: an exit code, a JUnit file, GitHub
annotations."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Literal, get_args

from gradstudio.core.diagnosis.finding import RANK, Finding
from gradstudio.core.text import one_line
from gradstudio.session.record.ranked_findings import ranked_findings
from gradstudio.session.record.run import Run

Bar = Literal["diverged", "critical", "warning"]
BARS: tuple[str, ...] = get_args(Bar)
UNSEEN, DIVERGED, CRITICAL = 1, 3, 4  # exit codes, like those of `gradstudio run`


def is_over(bar: str, finding: Finding) -> bool:
    """Return whether a finding alone fails a run; with "diverged" none does."""
    return bar in RANK and RANK[finding.severity] >= RANK[bar]


def exit_code(runs: Sequence[Run], bar: str) -> int:
    """Return the exit code of a command that has watched these runs; 0 if all of them pass."""
    if any(run.first_nonfinite_step is not None for run in runs):
        return DIVERGED
    over = any(is_over(bar, finding) for run in runs for finding in run.findings.values())
    return CRITICAL if over else 0 if runs else UNSEEN


def junit(runs: Sequence[Run], bar: str) -> str:
    """Return the runs as a JUnit file: a test case for each, with its findings as the text of the failure."""
    from xml.etree import ElementTree

    suite = ElementTree.Element("testsuite", name="gradstudio", tests=str(len(runs) or 1))
    for run in runs:
        findings, failed = ranked_findings(run), exit_code([run], bar) != 0
        case = ElementTree.SubElement(suite, "testcase", name=one_line(run.title), time=f"{run.seconds:.3f}")
        if findings or failed:
            part = ElementTree.SubElement(case, "failure" if failed else "system-out")
            part.text = "\n\n".join(map(in_words, findings))
            if failed:
                part.set("message", findings[0].title if findings else "The run diverged")
    if not runs:
        case = ElementTree.SubElement(suite, "testcase", name="training")
        ElementTree.SubElement(case, "failure", message="No training was seen")
    suite.set("failures", str(len(suite.findall("*/failure"))))
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def for_github(runs: Sequence[Run], bar: str) -> list[str]:
    """Return a line for each finding that GitHub shows beside the job and beside the offending line of code; none
    outside of a GitHub job."""
    if not os.environ.get("GITHUB_ACTIONS"):
        return []
    lines = []
    for run in runs:
        place = re.match(r"([^:\s]+\.py):(\d+)", run.provenance.source) if run.provenance else None
        where = f"file={place[1]},line={place[2]}," if place else ""
        for finding in ranked_findings(run):
            level = "error" if exit_code([run], bar) and finding.severity != "info" else _LEVELS[finding.severity]
            title = one_line(finding.title).replace(",", "%2C").replace(":", "%3A")
            text = in_words(finding).replace("%", "%25").replace("\n", "%0A")
            lines.append(f"::{level} {where}title={title}::{text}")
    return lines


_LEVELS = {"critical": "error", "warning": "warning", "info": "notice"}


def in_words(finding: Finding) -> str:
    """Return a finding as lines: what, how it is known, what it means, what to do."""
    head = f"{finding.severity}: {finding.title}, {finding.when}"
    lines = [head, finding.evidence, finding.meaning, *(f"try: {remedy}" for remedy in finding.remedies[:3])]
    return "\n".join(map(one_line, lines))

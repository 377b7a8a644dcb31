"""The step numbers of a script or a log, if they differ from row numbers: it was resumed, or a log has a line only
every few steps. Everything else counts rows; texts for the user show the script's own numbers."""

from __future__ import annotations

import re
from dataclasses import replace

from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.history import History
from gradstudio.session.record.run import Run

_N = r"\d(?:[\d,]*\d)?"  # a number; a comma after it is not part of it
_STEP = re.compile(
    rf"\b(?P<word>step) (?P<first>{_N})|\b(?P<words>steps) (?P<from>{_N})(?P<to>–| to | and )(?P<last>{_N})"
    rf"|\b(?P<count>{_N}|one) (?P<kind>(?:latest |training )?)steps?\b",
    re.IGNORECASE,
)


def differ(history: History) -> bool:
    """Return whether the script's own step numbers differ from those of the rows."""
    last = len(history) - 1
    return last >= 0 and (own_step(history, 0), own_step(history, last)) != (0, last)


def own_step(history: History, row: int) -> int:
    """Return the script's number of a row; for the row after the last, the next number."""
    count = len(history)
    if not count:
        return row
    known = min(max(row, 0), count - 1)
    return int(history.value("step", known)) + row - known


def in_own_steps(run: Run, text: str) -> str:
    """Return a text about rows with the script's own numbers."""
    if not differ(run.history):
        return text
    history, apart = run.history, not _is_dense(run.history)

    def own(match: re.Match[str]) -> str:
        if match["count"]:
            rows = "row" if match["count"].lower() in ("1", "one") else "rows"
            return f"{match['count']} {match['kind']}{rows}" if apart else match[0]
        if match["word"]:
            return f"{match['word']} {_number(history, match['first'])}"
        ends = (_number(history, match[each]) for each in ("from", "last"))
        return f"{match['words']} {match['to'].join(ends)}"

    return _STEP.sub(own, text)


def with_own_steps(run: Run, finding: Finding) -> Finding:
    """Return a finding whose texts have the script's own numbers; its steps stay rows."""
    if not differ(run.history):
        return finding
    texts = {name: in_own_steps(run, getattr(finding, name)) for name in ("title", "evidence", "meaning")}
    ends = (own_step(run.history, finding.first_step), own_step(run.history, finding.last_step))
    return replace(finding, **texts, own_steps=ends)


def _number(history: History, row: str) -> str:
    return f"{own_step(history, int(row.replace(',', ''))):,}"


def _is_dense(history: History) -> bool:
    """Return whether every step of the script is a row."""
    last = len(history) - 1
    return own_step(history, last) - own_step(history, 0) == last

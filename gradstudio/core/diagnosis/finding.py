"""A finding: what a rule found, when and where, its evidence, and what may fix it."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Literal

Severity = Literal["critical", "warning", "info"]
RANK: dict[Severity, int] = {"info": 0, "warning": 1, "critical": 2}


@dataclass(frozen=True)
class Finding:
    """A finding of a rule: `evidence` is what was measured, `meaning` what it means, `remedies` the knob changes that
    may fix it."""

    rule: str
    severity: Severity
    title: str
    first_step: int
    last_step: int
    layers: tuple[str, ...]
    evidence: str
    meaning: str
    remedies: tuple[str, ...]
    explains: tuple[str, ...] = ()  # rules whose findings it explains: see cause_ranking.py
    own_steps: tuple[int, ...] = ()  # the script's own numbering of the two steps, if it differs

    def until(self, step: int) -> Finding:
        """Return the same finding, extended until `step`. Rules call this at every step, and `dataclasses.replace`
        takes three times as long."""
        return Finding(
            self.rule, self.severity, self.title, self.first_step, step, self.layers, self.evidence, self.meaning,
            self.remedies, self.explains
        )  # fmt: skip

    @property
    def when(self) -> str:
        """The steps in words: 'step 41' or 'steps 41–60'."""
        first, last = self.own_steps or (self.first_step, self.last_step)
        return f"step {first:,}" if first == last else f"steps {first:,}–{last:,}"


class Findings(tuple[Finding, ...]):
    """Findings that render themselves in a notebook."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return "".join(map(_html, self)) or "<p>no rule found anything</p>"


def _html(finding: Finding) -> str:
    said = [finding.evidence, finding.meaning, *(f"try: {remedy}" for remedy in finding.remedies[:3])]
    colour = {"critical": "#c2410c", "warning": "#9a6700", "info": "#626b7a"}[finding.severity]
    head = f"<b>{escape(finding.title)}</b> <span style='color:{colour}'>{finding.severity}</span> {finding.when}"
    lines = "".join(f"<div>{escape(text)}</div>" for text in said if text)
    return f"<div style='border-left:3px solid {colour};padding:2px 10px;margin:6px 0'>{head}{lines}</div>"

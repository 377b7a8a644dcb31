"""Rules of plug-ins: created and called like the built-in ones, but a failing one only produces a finding."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

from gradstudio.core import plugins
from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.rule import Rule
from gradstudio.core.diagnosis.rule_names import NAMES
from gradstudio.core.experiment import Experiment
from gradstudio.core.history import History
from gradstudio.core.knobs import KnobError

SWITCHED_OFF = "plugin_off"  # rule of the finding that names the failed plug-ins


def makers() -> dict[str, Callable[..., Any]]:
    """Return the makers of the rules of plug-ins, by name."""
    by_name: dict[str, Callable[..., Any]] = {}
    for name in plugins.names("rules"):
        maker = plugins.get("rules", name)
        if name in NAMES or getattr(maker, "rule", None) != name:
            plugins.switch_off("rules", name, "the entry point, and `rule` in its class, must be one new name")
        else:
            by_name[name] = maker
    return by_name


def make(values: Any) -> list[Rule]:
    """Create the rules of plug-ins, with thresholds by rule, and the rule that reports failed plug-ins; none without
    plug-ins."""
    rules: list[Any] = []
    for name, maker in makers().items():
        rule = plugins.attempt("rules", name, lambda maker=maker, name=name: maker(**values.get(name, {})))
        if rule is not None:
            rules.append(AddedRule(name, rule))
    return [*rules, SwitchedOff()] if plugins.in_words() or plugins.problems() else []


def is_added(rule: str) -> bool:
    """Return whether a finding comes from a plug-in."""
    return rule == SWITCHED_OFF or plugins.is_on("rules", rule)


def knobs_of(finding: Finding) -> Finding:
    """Return the finding with only those remedies that are knob changes; the others are lines for a script."""
    return dataclasses.replace(finding, remedies=tuple(filter(_is_assignment, finding.remedies)))


def lines_of(finding: Finding) -> tuple[str, ...]:
    """Return the remedies that are lines for a script."""
    return tuple(remedy for remedy in finding.remedies if not _is_assignment(remedy))


class AddedRule:
    """A rule of a plug-in."""

    def __init__(self, name: str, rule: Any) -> None:
        self.rule, self._rule = name, rule
        self.every_row = bool(getattr(rule, "every_row", False))

    def __copy__(self) -> AddedRule:
        return AddedRule(self.rule, copy.copy(self._rule))

    def update(self, history: History, progress: Progress) -> Finding | None:
        return self._ask(lambda: self._rule.update(history, progress))

    def conclude(self, history: History, progress: Progress, accuracy: float) -> Finding | None:
        if hasattr(self._rule, "conclude"):
            return self._ask(lambda: self._rule.conclude(history, progress, accuracy))
        return None

    def _ask(self, ask: Callable[[], Any]) -> Finding | None:
        def checked() -> Finding | None:
            finding = ask()
            if finding is not None and not (isinstance(finding, Finding) and finding.rule == self.rule):
                raise TypeError(f"a rule gives None or its own Finding, not {type(finding).__name__}")
            return finding

        return plugins.attempt("rules", self.rule, checked)


class SwitchedOff:
    """Reports the plug-ins that have failed."""

    rule: ClassVar[str] = SWITCHED_OFF
    every_row: ClassVar[bool] = False

    def update(self, history: History, progress: Progress) -> Finding | None:
        return self.conclude(history, progress, 0.0) if history.due else None

    def conclude(self, history: History, progress: Progress, accuracy: float) -> Finding | None:
        if not (problems := plugins.problems()):
            return None
        meaning = "The training and all other findings are as they are without it."
        last = max(len(history) - 1, 0)
        return Finding(self.rule, "info", "A plug-in is off", 0, last, (), ". ".join(problems) + ".", meaning, ())


def _is_assignment(remedy: str) -> bool:
    try:
        Experiment().with_texts(remedy.split())
    except KnobError:
        return False
    return True

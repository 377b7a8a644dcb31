"""The mistakes of a script: each stands marked in its place, behind an `if` where it is switched during the run."""

from __future__ import annotations

from gradstudio.core import mistakes
from gradstudio.core.experiment import KNOBS
from gradstudio.session.script.plan import Lines, Plan

MARK = "# MISTAKE"
NAMES = [name.partition(".")[2] for name in KNOBS if name.startswith("mistakes.")]


def ever(plan: Plan, name: str) -> bool:
    return plan.ever(f"mistakes.{name}", True)


def always(plan: Plan, name: str) -> bool:
    return plan.values(f"mistakes.{name}") == [True]


def switch(plan: Plan, *names: str) -> str:
    """Return a condition that holds while one of these mistakes is on; "" where none ever is, "True" where one always
    is."""
    if any(always(plan, name) for name in names):
        return "True"
    return " or ".join(plan.text(f"mistakes.{name}") for name in names if ever(plan, name))


def wrong(plan: Plan, lines: Lines, name: str, text: str, why: str, depth: int, condition: str = "") -> None:
    """Add a line that only the mistake has, under a condition where it needs one."""
    if not ever(plan, name):
        return
    switched = "" if always(plan, name) else plan.text(f"mistakes.{name}")
    guard = " and ".join(part for part in (switched, condition) if part)
    mark(plan, lines, name, why, depth)
    if guard:
        lines.add(f"if {guard}:", depth)
    lines.add(text, depth + bool(guard))


def mark(plan: Plan, lines: Lines, name: str, why: str, depth: int) -> None:
    """Add the comment above a mistake: what it does, or that it changes nothing with the other knobs."""
    note = mistakes.note(f"mistakes.{name}", plan.experiment)
    lines.add(f"{MARK} {name}: {note if note.startswith('changes nothing') and not plan.timeline else why}", depth)


def right(plan: Plan, lines: Lines, names: tuple[str, ...], text: str, depth: int) -> None:
    """Add a line that is left out while one of these mistakes is on."""
    condition = switch(plan, *names)
    if condition == "True":
        return
    if condition:
        lines.add(f"if not {condition}:" if " or " not in condition else f"if not ({condition}):", depth)
    lines.add(text, depth + bool(condition))


def unseen(plan: Plan, lines: Lines, text: str) -> None:
    """Add a comment for each mistake that is on but has no line in the script, as it changes nothing."""
    for name in NAMES:
        if ever(plan, name) and f"{MARK} {name}" not in text:
            lines.add(f"{MARK} {name}: {mistakes.note(f'mistakes.{name}', plan.experiment) or 'changes nothing here'}")

"""The kinds of cases: how each is drawn, and the diagnosis that it must get, given what was done to the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gradstudio.session.course.drawn_faults.drawing_runs import Random, Texts


@dataclass(frozen=True)
class Part:
    """What is done to a healthy run: knobs from the start, or from a step on (`at`, such as 60:optimizer.lr=3)."""

    named: tuple[str, ...] = ()  # rules any of which identifies it
    change: tuple[str, ...] = ()
    at: tuple[str, ...] = ()
    silent: bool = False  # it is a fault whether or not the accuracy shows it
    since: int = 0  # the first step at which it can have an effect


@dataclass(frozen=True)
class DrawnFault:
    """A healthy run, and what is done to it, in order of steps."""

    base: Texts
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Kind:
    """A kind of case. `healthy`: the run only looks ill."""

    group: str
    name: str
    draw: Callable[[Random], DrawnFault]
    healthy: bool = False


def changes_at(step: int, *assignments: str, named: tuple[str, ...] = (), silent: bool = False) -> Part:
    """Return knobs that change at a step."""
    return Part(named, at=tuple(f"{step}:{text}" for text in assignments), silent=silent, since=step)

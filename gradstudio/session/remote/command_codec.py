"""The commands of a run in messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradstudio.core.knobs import Value
from gradstudio.core.typed_json import NotConforming, from_plain, to_plain
from gradstudio.session.running.worker_commands import (
    Command,
    Compare,
    Pause,
    Resume,
    SetKnob,
    SetSpeed,
    StepOnce,
    Stop,
    WatchGauges,
)

_PLAIN: dict[str, Callable[[], Command]] = {each.__name__: each for each in (Pause, Resume, StepOnce, Compare)}


def encode(command: Command) -> list[Any]:
    """Return a command as plain values: its name and its arguments."""
    match command:
        case SetKnob(name, value):
            return ["SetKnob", name, to_plain(value)]
        case Stop(leaving):
            return ["Stop", leaving]
        case SetSpeed(speed):
            return ["SetSpeed", to_plain(speed)]
        case WatchGauges(names):
            return ["WatchGauges", sorted(names)]
        case _:
            return [type(command).__name__]


def decode(given: list[Any]) -> Command:
    """Return the command in a message. NotConforming if it is not one."""
    match given:
        case ["SetKnob", name, value]:
            return SetKnob(from_plain(str, name), from_plain(Value, value))
        case ["Stop", leaving]:
            return Stop(from_plain(bool, leaving))
        case ["SetSpeed", speed]:
            return SetSpeed(from_plain(float, speed))
        case ["WatchGauges", names]:
            return WatchGauges(frozenset(from_plain(list[str], names)))
        case [str(name)] if name in _PLAIN:
            return _PLAIN[name]()
    raise NotConforming("no command")

"""The devices of a place, as reported by the doctor of the program there."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import gradstudio
from gradstudio.core import python_process
from gradstudio.core.text import brief, one_line
from gradstudio.core.typed_json import NotConforming, from_plain
from gradstudio.core.worker_places import Place, what_is_missing

LIMIT = 60.0  # seconds for an answer
_NEEDED = ("Python", "torch", "numpy", "pydantic", "Devices")  # checks without which nothing trains


@dataclass(frozen=True)
class PlaceDevice:
    """A device of a place. `free`: bytes of memory, None if unknown."""

    id: str
    name: str
    free: int | None

    @property
    def in_words(self) -> str:
        """Name and free memory."""
        return self.name + (f", {self.free / 1e9:.3g} GB free" if self.free is not None else "")


@dataclass(frozen=True)
class PlaceAnswer:
    """The devices of a place. `problem`: in one line, why nothing trains there; "" if it does."""

    devices: tuple[PlaceDevice, ...] = ()
    versions: str = ""
    problem: str = ""


def ask(place: Place, stopped: Callable[[], bool] = lambda: False) -> PlaceAnswer:
    """Run the doctor there, and return its report. Takes seconds."""
    try:
        child = python_process.start(
            place.words("doctor", "--json"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except OSError as fault:
        return PlaceAnswer(problem=f"its command cannot be started: {fault.strerror or fault}")
    streams = python_process.output(child, stopped, LIMIT)
    if streams is None:
        return PlaceAnswer(problem=f"no answer within {LIMIT:g} s")
    told, errors = (each.decode(errors="replace") for each in streams)
    checks = _checks(told)
    if checks is None:
        lines = errors.splitlines()
        why = what_is_missing(child.returncode, lines) or next(iter(lines[-1:]), "") or "no answer of a doctor"
        return PlaceAnswer(problem=brief(one_line(why), 200))
    return _answer(checks)


def _checks(told: str) -> dict[str, dict[str, Any]] | None:
    """Return the checks of the doctor by name. A login may have printed something before them."""
    for start in (at for at in range(len(told)) if told.startswith("[\n", at) and (at == 0 or told[at - 1] == "\n")):
        with suppress(ValueError, TypeError, KeyError, RecursionError):
            checks = json.JSONDecoder().raw_decode(told, start)[0]
            return {str(check["name"]): check for check in checks}
    return None


def _answer(checks: dict[str, dict[str, Any]]) -> PlaceAnswer:
    try:
        texts = {name: from_plain(str, check["text"]) for name, check in checks.items()}
        version, here = texts.get("GradStudio", "an older version"), gradstudio.__version__
        if version != here:
            return PlaceAnswer(problem=f"GradStudio there is {version}: install {here}, as here")
        for name in _NEEDED:
            if name in checks and not checks[name]["ok"]:
                return PlaceAnswer(problem=f"{name}: {texts[name]}. {from_plain(str, checks[name]['advice'])}")
        devices = [
            PlaceDevice(
                from_plain(str, each["id"]), from_plain(str, each["name"]), from_plain(int | None, each["free"])
            )
            for each in checks["Devices"]["devices"]
        ]
    except (NotConforming, KeyError, TypeError) as fault:
        return PlaceAnswer(problem=f"its doctor says what cannot be read: {fault}")
    versions = ", ".join(f"{name} {texts[name]}" for name in ("GradStudio", "Python", "torch") if name in texts)
    return PlaceAnswer(tuple(devices), versions)

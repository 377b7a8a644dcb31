"""Places where a worker can be started: each is a name and a command entered by the user. They are stored in one file,
and nothing here runs a command."""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from dataclasses import dataclass
from pathlib import Path, PurePath

import tomli_w

import gradstudio
from gradstudio.core import files
from gradstudio.core.knobs import quote
from gradstudio.core.text import brief, one_line

HERE = "here"  # the name of this program itself
TO_INSTALL = f"install GradStudio {gradstudio.__version__} there, with pip install in a copy of its folder"
_NAME = re.compile(r"[\w.-]{1,40}")
_MOST, _LONGEST = 1_000_000, 1000  # bytes of the file, characters of a command
_CRASHED = "Fatal Python error: "
_PYTHON = re.compile(r"python[\d.]*(\.exe)?")
_NOT_THERE = re.compile(r"No module named |gradstudio.*(not found|No such file)|executable file not found")


class PlaceError(ValueError):
    """A place that cannot be used. The text is one line for the user."""


@dataclass(frozen=True)
class Place:
    """A name, and the command that leads to this program there, such as `ssh lab`."""

    name: str
    command: str
    keep: bool = False  # whether a run goes on into the library there once the connection breaks

    def words(self, *arguments: str) -> list[str]:
        """Return the command line that runs this program there. It does not pass through a local shell."""
        words = _split(self.command)
        if words[-1] == "worker":
            words.pop()
        last = PurePath(words[-1]).name
        program = ["-P", "-m", "gradstudio"] if _PYTHON.fullmatch(last) else ["gradstudio"] * (last != "gradstudio")
        return [os.path.expanduser(words[0]), *words[1:], *program, *arguments]

    def end_in_words(self, code: int, lines: list[str]) -> str:
        """Return how its command ended, in words that follow 'The worker'. `lines` are its stderr."""
        told = [line.strip() for line in reversed(lines) if line.strip()]
        crashed = [line.removeprefix(_CRASHED) for line in told if line.startswith(_CRASHED)]  # more follows
        why = what_is_missing(code, lines) or next(iter([*crashed, *told]), "")
        how = "its command was ended" if code < 0 else f"its command ended with exit code {code}"
        return f"on {self.name} is gone, as {how}{': ' if why else ''}{brief(one_line(why).rstrip('.'), 200)}"


def what_is_missing(code: int, lines: list[str]) -> str:
    """Return what to install if a command ended like this; "" if that is not the reason."""
    text = "\n".join(lines)
    if "nknown option -P" in text:
        return "GradStudio needs Python 3.11 or newer there"
    return TO_INSTALL if code == 127 or _NOT_THERE.search(text) else ""


def places_file() -> Path:
    """Return the file of the places; it need not exist."""
    return files.user_rules().with_name("places.toml")


def read() -> dict[str, Place]:
    """Return the places by name. PlaceError if the file cannot be read."""
    path = places_file()
    try:
        data = files.read_bounded(path, _MOST)
        told = tomllib.loads(data.decode())
        keeping = [str(name) for name in told.get("keep", ())]
        return {name: _checked(name, command, keep=name in keeping) for name, command in told["places"].items()}
    except FileNotFoundError:
        return {}
    except PlaceError as fault:
        raise PlaceError(f"{path}: {fault}") from None
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as fault:
        raise PlaceError(f"{path} is no list of places: {one_line(files.reason(fault))}") from None


def find(name: str) -> Place:
    """Return the place with this name. PlaceError if there is none."""
    known = read()
    if name not in known:
        raise PlaceError(f"there is no place {quote(name)}; there are: {', '.join(known) or 'none yet'}")
    return known[name]


def find_address(address: str) -> Place:
    """Return the place with this name, or the one for ssh://HOST, which need not be stored. PlaceError if there is
    none."""
    match = re.fullmatch(r"ssh://((?:\w[\w.-]*@)?(\w[\w.-]*))(?::(\d{1,5}))?/?", address)
    if match is None:
        return find(address)
    port = f"-p {match[3]} " if match[3] else ""
    return Place(match[2], f"ssh {port}{match[1]} gradstudio")


def add(name: str, command: str, *, keep: bool = False) -> Place:
    """Store a place, replacing one with the same name. PlaceError if it is invalid."""
    place = _checked(name, command, keep=keep)
    _write(read() | {name: place})
    return place


def remove(name: str) -> None:
    """Forget a place. PlaceError if there is none with this name."""
    find(name)
    _write({each: place for each, place in read().items() if each != name})


def _write(known: dict[str, Place]) -> None:
    keeping = [name for name, place in known.items() if place.keep]
    commands = {name: place.command for name, place in known.items()}
    text = tomli_w.dumps({**({"keep": keeping} if keeping else {}), "places": commands})
    try:
        files.write_whole(places_file(), text)
    except OSError as fault:
        raise PlaceError(f"{places_file()} cannot be written: {files.reason(fault)}") from None


def _checked(name: str, command: object, *, keep: bool) -> Place:
    if not _NAME.fullmatch(name) or name == HERE:
        raise PlaceError(f"{quote(name[:80])} is no name of a place: letters, digits, dots and dashes, but not {HERE}")
    if not isinstance(command, str) or not command.isprintable() or len(command) > _LONGEST:
        raise PlaceError(f"the command of {name} is no line of at most {_LONGEST:,} characters")
    _split(command)
    return Place(name, command.strip(), keep)


def _split(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as fault:
        raise PlaceError(f"the command cannot be read: {str(fault).lower()}") from None
    if not words or words == ["worker"]:
        raise PlaceError("the command is empty; such as: ssh lab")
    return words

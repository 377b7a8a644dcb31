"""TOML from untrusted sources: input that is too large, or that tomllib would take too long for, is rejected in one
line.

The text of a TomlError follows the name of the file: ", line 3: not valid TOML: ...", or ": permission denied"."""

from __future__ import annotations

import codecs
import re
import tomllib
from pathlib import Path
from typing import Any

from gradstudio.core import files

LARGEST_FILE = 1_000_000  # bytes
LARGEST_TEXT = 4 * LARGEST_FILE  # characters; what was read from a file is written a little longer
MOST_DOTS = 200  # per line: tomllib's time grows with the square of a dotted key's length


class TomlError(ValueError):
    """A file that cannot be read, or a text that is not allowed."""


def read(path: Path) -> str:
    """Return the text of a file; TomlError if it cannot be read, is too large or is not UTF-8."""
    try:
        data = files.read_bounded(path, LARGEST_FILE).removeprefix(codecs.BOM_UTF8)
    except (OSError, ValueError) as fault:  # ValueError: a name that no file can have
        raise TomlError(f": {files.reason(fault)}") from None
    if len(data) > LARGEST_FILE:
        raise TomlError(f": larger than {LARGEST_FILE // 1000} kB, which is the most that is read")
    try:
        return data.decode()
    except UnicodeDecodeError as fault:
        line = data[: fault.start].count(b"\n") + 1
        raise TomlError(f", line {line}: not UTF-8 text (byte 0x{data[fault.start]:02x}); save it as UTF-8") from None


def parse(text: str) -> dict[str, Any]:
    """Return the parsed table; TomlError if `text` is not valid."""
    if len(text) > LARGEST_TEXT:
        raise TomlError(f": {len(text):,} characters, which is more than is read")
    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") > MOST_DOTS:
            raise TomlError(f", line {number}: more than {MOST_DOTS} dots in a line")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as fault:
        place = re.search(r"\(at line (\d+), column (\d+)\)", str(fault))
        message = str(fault).partition(" (at ")[0]
        line = f", line {place[1]}" if place else ", last line"
        raise TomlError(f"{line}: not valid TOML: {message}") from None
    except (RecursionError, ValueError) as fault:
        raise TomlError(f": not valid TOML: {str(fault)[:200] or 'nested too deeply'}") from None


def line_of(text: str, fault: str) -> str:
    """Return ', line N' for the section.field, the section or the entry (lesson.0) that an error names first; empty if
    the text does not contain it."""
    entry = re.match(r"(\w+)\.(\d+)\b", fault)
    named = re.search(r"([A-Za-z_]\w*)\.([A-Za-z_]\w*)", fault)
    key = re.search(r"(?:unknown knob )?([A-Za-z_]\w*)", fault)
    wanted, left = (entry[1], int(entry[2])) if entry else (key[1] if key and not named else "", 0)
    section, header = "", re.compile(r"^\s*\[+\s*([\w.]+)\s*\]+")
    for number, line in enumerate(text.splitlines(), 1):
        if match := header.match(line):
            section = match[1]
            if section == wanted:
                if left == 0:
                    return f", line {number}"
                left -= 1
        elif not entry and named and section == named[1] and re.match(rf"\s*{named[2]}\s*=", line):
            return f", line {number}"
    return ""

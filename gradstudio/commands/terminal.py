"""Output of the commands: text, files, JSON and tables. A title or a note may contain anything, so a terminal gets only
printable characters and line ends."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

from gradstudio.core.text import brief, one_line


class WrongRequest(ValueError):
    """A request that cannot be carried out. One line for the user."""


def say(text: str) -> None:
    """Print a text for the user. A closed pipe is no error."""
    _print(printable(text))


def say_file(text: str) -> None:
    """Print a text that the user may save: unchanged, except on a terminal."""
    _print(printable(text) if sys.stdout.isatty() else text)


def say_json(value: Any) -> None:
    """Print strict JSON, with every unprintable character escaped."""
    from gradstudio.session.files.summary import to_json

    _print("".join(letter if letter.isprintable() or letter == "\n" else _escape(letter) for letter in to_json(value)))


def complain(text: str) -> None:
    """Print one line on stderr, of at most 300 characters: a long name in it is shortened in the middle."""
    complain_at_length(brief(text))


def complain_at_length(text: str) -> None:
    """Print a text on stderr that has several lines."""
    with contextlib.suppress(OSError):  # no reader, such as on a terminal that was closed
        print(printable(text), file=sys.stderr, flush=True)


def table(head: tuple[str, ...], rows: list[tuple[str, ...]], *, headed: bool = False) -> None:
    """Print aligned columns: styled on a terminal, elsewhere plain lines, one for each row, including the head if
    `headed`."""
    rows = [tuple(" ".join(one_line(cell).split()) for cell in row) for row in rows]
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        drawn = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
        for title in head:
            drawn.add_column(title, no_wrap=title == "Run")  # an id is for copying
        for row in rows:
            drawn.add_row(*(Text(cell) for cell in row))
        Console().print(drawn)
        return
    lines = [head, *rows] if headed else rows
    widths = [max((len(line[index]) for line in lines), default=0) for index in range(len(head))]
    for line in lines:
        _print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def printable(text: str) -> str:
    """Return the text without control characters, which a terminal would interpret; line ends stay."""
    return "".join(letter if letter.isprintable() or letter == "\n" else " " for letter in text)


def close_stdout() -> None:
    """Discard pending output, so that Python does not complain at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def stdout_fault() -> str:
    """Return why stdout is not writable, "" if it is: after a fault of unknown origin."""
    try:
        os.write(1, b"\n")
    except OSError as fault:
        return (fault.strerror or str(fault)).lower()
    return ""


def _print(text: str) -> None:
    try:
        print(text, flush=True)
    except BrokenPipeError:
        close_stdout()


def _escape(letter: str) -> str:
    code = ord(letter)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\u{0xD7C0 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"

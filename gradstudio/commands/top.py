"""`gradstudio top` shows a run live in the terminal, also over ssh and in tmux."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gradstudio.commands.options import LibraryFile, open_library
from gradstudio.commands.terminal import WrongRequest, printable

if TYPE_CHECKING:
    from gradstudio.session.library.store import Library
    from gradstudio.session.record.run import Run

EVERY = 0.5  # seconds between two readings
REST = 4  # pause until the next reading, relative to the duration of the last one
Keys = Callable[[float], str]  # waits at most this many seconds; returns the key, or ""


def top(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run; without it the latest that trains.")] = "",
    library: LibraryFile = None,
) -> None:
    """Show a run in the terminal while it trains. Keys: p pauses it or lets it go on, s stops it, q leaves."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise WrongRequest("top needs a terminal; `gradstudio runs show` prints a run once")
    with open_library(library) as kept, _keys() as keys:
        _show(kept, kept.find(run) if run else _latest(kept), keys)


def _latest(kept: Library) -> str:
    """Return the newest run that is training; if none is, the newest of all."""
    from gradstudio.session.record.run import OVER

    entries = kept.entries()
    return next((entry.id for entry in entries if entry.outcome not in OVER), kept.find("last"))


def _show(kept: Library, name: str, keys: Keys) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from gradstudio.commands.top_screen import screen

    shown_run, version, said, console = kept.load(name), kept.version(), "", Console()
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            lines = screen(shown_run, console.width, console.height, said)
            parts = [Text(printable(text).ljust(console.width), style, no_wrap=True) for text, style in lines]
            live.update(Text("\n").join(parts), refresh=True)
            began = time.monotonic()
            if not shown_run.over and kept.version() != version:
                version, before = kept.version(), shown_run.status
                shown_run = kept.load(name, shown_run.history)
                said = said if shown_run.status == before else ""  # it has obeyed
            key = keys(max(EVERY, REST * (time.monotonic() - began)))
            if key in ("q", "\x03", "\x1b"):
                return
            said = _ask(kept, shown_run, key) or said


def _ask(kept: Library, run: Run, key: str) -> str:
    """Send the request of a key to the program that trains the run; return the text about it."""
    from gradstudio.session.library.store import LibraryError

    words = {"p": "resume" if run.status == "paused" else "pause", "s": "stop"}
    if key not in words:
        return ""
    try:
        kept.request(run.id, words[key], 1.0)
    except LibraryError as fault:
        return str(fault)
    return f"asked to {words[key]}: it obeys at its next step   {'p go on   ' * (key == 'p')}q quit"


@contextmanager
def _keys() -> Iterator[Keys]:
    """Read single keys, without Enter."""
    if sys.platform == "win32":
        yield _windows_key
        return
    import select
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)

    def key(seconds: float) -> str:
        return sys.stdin.read(1) if select.select([sys.stdin], [], [], seconds)[0] else ""

    try:
        tty.setcbreak(sys.stdin)
        yield key
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _windows_key(seconds: float) -> str:
    import msvcrt

    console: Any = msvcrt
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if console.kbhit():
            return console.getwch()
        time.sleep(0.02)
    return ""

"""`gradstudio desktop` adds the program to the menu of a Linux desktop, and removes it again."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import typer

from gradstudio.commands.terminal import WrongRequest, say
from gradstudio.core.system_libraries import FOR_A_WINDOW

app = typer.Typer(help="Put GradStudio into the menu of the desktop, or take it out.", rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def desktop(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        raise WrongRequest("say what: gradstudio desktop install, or gradstudio desktop uninstall")


@app.command("install", help="Write a menu entry and the icon into your own folders (Linux). Needs no rights.")
def install() -> None:
    from gradstudio.session.machine import menu_entry

    if missing := next((name for name in ("PySide6", "pyqtgraph") if not _is_installed(name)), ""):
        raise WrongRequest(
            f"the menu entry opens the window, which needs {missing}, and that is not installed: pip install "
            f"{FOR_A_WINDOW}"
        )
    _carry_out("wrote", menu_entry.install)


@app.command("uninstall", help="Delete the menu entry and the icon.")
def uninstall() -> None:
    from gradstudio.session.machine import menu_entry

    _carry_out("deleted", menu_entry.uninstall)


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ImportError:
        return False


def _carry_out(done: str, act: Callable[[], list[Path]]) -> None:
    """Do it, and name each file."""
    from gradstudio.core.files import reason

    if not sys.platform.startswith("linux"):
        raise WrongRequest("menu entries are made on Linux only; start the app with: gradstudio")
    try:
        paths = act()
    except OSError as fault:
        raise WrongRequest(f"{fault.filename or 'the menu entry'}: {reason(fault)}") from None
    for path in paths:
        say(f"{done} {path}")
    if not paths:
        say("there is no menu entry")

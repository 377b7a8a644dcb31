"""`gradstudio desktop` puts the program into the menu of a Linux desktop, and takes it out again."""

from __future__ import annotations

import sys

import typer

from gradstudio.commands.terminal import WrongRequest, say

app = typer.Typer(help="Put GradStudio into the menu of the desktop, or take it out.", rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def desktop(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        raise WrongRequest("say what: gradstudio desktop install, or gradstudio desktop uninstall")


@app.command("install", help="Write a menu entry and the icon into your own folders (Linux). Needs no rights.")
def install() -> None:
    from gradstudio.core.files import reason
    from gradstudio.session.machine import menu_entry

    _check_platform()
    try:
        written = menu_entry.install()
    except OSError as fault:
        raise WrongRequest(f"{fault.filename or 'the menu entry'}: {reason(fault)}") from None
    for path in written:
        say(f"wrote {path}")


@app.command("uninstall", help="Delete the menu entry and the icon.")
def uninstall() -> None:
    from gradstudio.core.files import reason
    from gradstudio.session.machine import menu_entry

    _check_platform()
    try:
        deleted = menu_entry.uninstall()
    except OSError as fault:
        raise WrongRequest(f"{fault.filename or 'the menu entry'}: {reason(fault)}") from None
    for path in deleted:
        say(f"deleted {path}")
    if not deleted:
        say("there is no menu entry")


def _check_platform() -> None:
    if not sys.platform.startswith("linux"):
        raise WrongRequest("menu entries are made on Linux only; start the app with: gradstudio")

"""The question before a studio file is run: it is a program that can do whatever its user can."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from gradstudio.commands.terminal import WrongRequest, complain, complain_at_length
from gradstudio.core.text import about_unseen, revealed

if TYPE_CHECKING:
    from gradstudio.core.experiment import Experiment
    from gradstudio.core.studio_file import StudioFile

Trust = Annotated[
    bool, typer.Option("--trust", help="Agree to run the code of a studio file, once and for all for this text.")
]


def agree(experiment: Experiment, *, trusted: bool) -> None:
    """Ask whether the studio file of an experiment may run, unless that was agreed to. WrongRequest where nobody
    agrees."""
    from gradstudio.core import trust
    from gradstudio.session import own_model

    file = experiment.studio_file
    if file is not None and own_model.needs_agreement(experiment):
        if not trusted:
            _ask(file)
        trust.agree(file.sha256)


def _ask(file: StudioFile) -> None:
    """Ask on the terminal; WrongRequest where there is none, or the answer is no."""
    size = f"{len(file.text.encode()):,} bytes, SHA-256 {file.sha256}"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise WrongRequest(f"{file.name} is a program and would be run: read it, then add --trust ({size})")
    complain(f"{file.name}: {size}")
    if unseen := about_unseen(file.text):
        complain(f"{unseen}: they may hide what the file does")
    while True:
        print("It is a program that can do whatever you can. Run it? [y]es, [n]o, [s]how it: ", end="", file=sys.stderr)
        sys.stderr.flush()
        answer = sys.stdin.readline().strip().lower()[:1]
        if answer == "s":
            complain_at_length(revealed(file.text).expandtabs(4))
        elif answer == "y":
            return
        else:
            raise WrongRequest(f"{file.name} was not run")

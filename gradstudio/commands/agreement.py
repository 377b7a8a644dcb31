"""The question before a studio file is run: it is a program with all the permissions of its user."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from gradstudio.commands.terminal import WrongRequest, complain, complain_at_length
from gradstudio.core.text import about_unseen, reveal

if TYPE_CHECKING:
    from gradstudio.core.experiment import Experiment
    from gradstudio.session.own_model import Agreement

Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Agree to run the code of a studio file, once and for all for this text and the texts of its knobs.",
    ),
]


def agree(*experiments: Experiment, trusted: bool) -> None:
    """Ask whether the studio file of some experiments may run, unless that was already agreed to. WrongRequest if the
    user does not agree."""
    from gradstudio.session import own_model

    agreement = own_model.to_agree(*experiments)
    if agreement is not None and not trusted:
        _ask(agreement)
    for each in experiments:
        own_model.keep_agreement(each)


def _ask(agreement: Agreement) -> None:
    """Ask on the terminal; WrongRequest if there is none, or the answer is no."""
    from gradstudio.core.knobs import format_value

    file = agreement.file
    for name, text in agreement.texts:
        complain(f"{file.name} would be run with {name} = {format_value(reveal(text))}")
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
            complain_at_length(reveal(file.text).expandtabs(4))
        elif answer == "y":
            return
        else:
            raise WrongRequest(f"{file.name} was not run")

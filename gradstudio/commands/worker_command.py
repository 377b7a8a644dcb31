"""`gradstudio worker` trains for a window that talks to it on its standard input and output. It is not meant for
users."""

from __future__ import annotations

from typing import Annotated

import typer

from gradstudio.commands.terminal import WrongRequest


def worker(nonce: Annotated[str, typer.Argument(help="What it greets with.")]) -> None:
    """Serve until the standard input ends."""
    from gradstudio.session.machine import doctor

    if problem := doctor.torch_problem():
        raise WrongRequest(problem)
    from gradstudio.session.map.served_cells import ServedCells
    from gradstudio.session.remote.serving import main

    main(nonce, {"cells": ServedCells})

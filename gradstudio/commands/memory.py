"""`gradstudio memory` prints the memory use of a step of an experiment, and what would lower it. Nothing is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gradstudio.commands.agreement import Trust, agree
from gradstudio.commands.options import Assignments, Json, LibraryFile
from gradstudio.commands.request import read_request
from gradstudio.commands.terminal import WrongRequest, say, say_json, table

if TYPE_CHECKING:
    from gradstudio.core.footprint import Cure, Footprint


def memory(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="A preset's id, a TOML file, a studio file, a folder that `run --out` has written."
        ),
    ],
    assignments: Assignments = None,
    library: LibraryFile = None,
    as_json: Json = False,
    trust: Trust = False,
) -> None:
    """Print how much memory a step of an experiment would need at its peak, and what would lower it, without
    training."""
    from gradstudio.core.footprint import Cure, Footprint
    from gradstudio.session.footprint.process import FootprintProcess, FootprintUnknown

    experiment = read_request(source, library, assignments, None, {}, beginning=True).experiment
    agree(experiment, trusted=trust)
    process = FootprintProcess()
    try:
        answers = list(process.ask(experiment))
    except FootprintUnknown as why:
        raise WrongRequest(f"the memory of {source[:80]} is not known: {why}") from None
    finally:
        process.close()
    footprint = next(answer for answer in answers if isinstance(answer, Footprint))
    cures = [answer for answer in answers if isinstance(answer, Cure)]
    if as_json:
        about = {"peak": footprint.peak, "phase": footprint.phase, "operation": footprint.operation}
        say_json({**about, **footprint.at_peak, "cures": [cure.plain() for cure in cures]})
    else:
        _say(footprint, cures, experiment.run.memory_budget)


def _say(footprint: Footprint, cures: list[Cure], budget: int) -> None:
    """Print a footprint for people."""
    from gradstudio.session.footprint import texts

    say(f"{texts.peak_text(footprint)}\n")
    table(("", "At the peak", "At most"), texts.part_rows(footprint), headed=True)
    if budget:
        say(f"\n{texts.budget_text(footprint, budget)}")
    if cures:
        fits = any(cure.fits for cure in cures)
        say(f"\nwhat would {'lower it' if not budget else 'make it fit' if fits else 'lower it, though nothing fits'}:")
        for cure in cures:
            say(f"  {texts.cure_text(cure)}{'' if cure.fits else ' (does not fit)'}\n    {_as_options(cure)}")
    say(f"\n{texts.PLAIN_LOOP}")


def _as_options(cure: Cure) -> str:
    return " ".join(f"--set {assignment}" for assignment in cure.assignments)

"""`gradstudio runs compare` shows in what runs differ, as tables, files or a report."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gradstudio.commands.options import Json, LibraryFile, RunNames, formats, open_library
from gradstudio.commands.terminal import say, say_json, table

if TYPE_CHECKING:
    from gradstudio.core.files import Content
    from gradstudio.session.files.comparison import Comparison, Member
    from gradstudio.session.record.run import Run


def compare(
    runs: RunNames,
    library: LibraryFile = None,
    as_json: Json = False,
    csv: Annotated[
        Path | None,
        typer.Option("--csv", metavar="FILE", help="Write loss and gradient norm by step, a column for each run."),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Write comparison.json and curves.csv here.")] = None,
    report: Annotated[
        str,
        typer.Option(
            metavar="FORMATS", help="Write a report: html, pdf or html,pdf. Without --out, into the folder comparison."
        ),
    ] = "",
) -> None:
    from gradstudio.core import files
    from gradstudio.session.files import comparison, output

    reports = formats("--report", report, output.REPORTS)
    folder = out or (Path("comparison") if reports else None)
    with open_library(library) as store:
        ids = [store.find(run) for run in runs]
        comparison.check(ids)  # before hundreds are read
        loaded = [store.load(run) for run in ids]
    compared = comparison.compare(loaded)
    stream = csv if csv and files.is_stream(csv) else None
    contents = _files(loaded, compared, folder, reports, None if stream else csv)
    if stream:
        output.write_stream(stream, partial(comparison.curves_csv, loaded))
    output.write_together(contents)
    if as_json:
        say_json(comparison.as_json(compared))
    else:
        _tell(compared, loaded)


def _files(
    runs: list[Run], compared: Comparison, folder: Path | None, reports: list[str], csv: Path | None
) -> Mapping[Path, Content]:
    """Return the files to write, by path."""
    from gradstudio.session.files import comparison
    from gradstudio.session.files.report import comparison as report
    from gradstudio.session.files.summary import to_json

    curves: Content = partial(comparison.curves_csv, runs)
    contents: dict[Path, Content] = {csv: curves} if csv else {}
    if folder:
        contents |= {
            folder / "comparison.json": to_json(comparison.as_json(compared)) + "\n",
            folder / "curves.csv": curves,
        }
        contents |= {folder / f"comparison.{suffix}": report(runs, suffix) for suffix in reports}
    return contents


def _tell(compared: Comparison, runs: list[Run]) -> None:
    """Print the comparison as tables, in which each run is a letter."""
    from gradstudio.core.text import one_line
    from gradstudio.session.words.story import headline

    letters = tuple("ABCDEFGH"[: len(runs)])
    table(
        ("", "Run", "Title", "Outcome"),
        [(letter, run.id, run.title, headline(run)) for letter, run in zip(letters, runs, strict=True)],
    )
    for title, rows in (
        ("Knobs", [(setting.knob, *setting.texts()) for setting in compared.settings]),
        ("Environment", [(name, *values) for name, values in compared.surroundings.items()]),
        ("Figures", [(label, *values) for label, values in compared.figure_texts()]),
    ):
        say("")
        if rows:
            table((title, *letters), rows, headed=True)
        else:
            say(f"{title}: no difference")
    say("")
    for letter, member in zip(letters[1:], compared.members[1:], strict=True):
        say(one_line(_parting(letter, member)))
    for letter, member in zip(letters, compared.members, strict=True):
        step = member.figures.first_nonfinite_step
        say(f"{letter} {'stayed finite' if step is None else f'diverged at step {step:,}'}")


def _parting(letter: str, member: Member) -> str:
    """Return the step from which the loss of a run differs from that of the first."""
    if not member.shared_steps:
        return f"A and {letter} have no step in common"
    if member.differs_at is None:
        return (
            f"the losses of A and {letter} are the same to the last bit in all steps that both made "
            f"({member.shared_steps:,})"
        )
    return f"the losses of A and {letter} first differ at step {member.differs_at:,}"

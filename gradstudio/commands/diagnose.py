"""`gradstudio diagnose` reads the log of a finished training, and prints the findings of our rules."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gradstudio.commands import exit_codes
from gradstudio.commands.options import Json, Out, formats
from gradstudio.commands.terminal import WrongRequest, printable, say, say_json, table

ENOUGH = 150  # rows

if TYPE_CHECKING:
    from gradstudio.session.files.log_reading.log_run import Log


def diagnose(
    log: Annotated[
        Path,
        typer.Argument(
            metavar="LOG",
            help="trainer_state.json, metrics.csv, any CSV or JSON lines, TensorBoard events, run-*.wandb, mlflow.db, "
            "or a folder with one of them.",
        ),
    ],
    columns: Annotated[
        str, typer.Option(metavar="OURS=THEIRS,...", help="Say which column is which, where the guess is wrong.")
    ] = "",
    report: Annotated[str, typer.Option(metavar="FORMATS", help="Write a report: html, pdf or html,pdf.")] = "",
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Find what went wrong in a training that is over, from its log. Exit codes as of `run`."""
    from gradstudio.core.files import file_name
    from gradstudio.session.files import output
    from gradstudio.session.files.curve_import import CurveError
    from gradstudio.session.files.log_reading import log_run

    reports = formats("--report", report, output.REPORTS)
    try:
        log_file = log_run.read(log, _column_roles(columns))
    except CurveError as fault:
        raise WrongRequest(str(fault)) from None
    if as_json:
        say_json(_as_json(log_file))
    else:
        _tell(log_file)
    if reports:
        for path in output.export(log_file.run, out or Path(file_name(log_file.run.id)), reports):
            if not as_json:
                say(str(path))
    raise typer.Exit(exit_codes.of_run(log_file.run))


def _column_roles(columns: str) -> dict[str, str]:
    """Return the given columns, by our name; WrongRequest for one that we do not have."""
    from gradstudio.session.files.log_reading.column_names import NAMES

    said = {}
    for part in filter(None, columns.split(",")):
        ours, equals, theirs = (text.strip() for text in part.partition("="))
        if not equals or not theirs or ours not in NAMES:
            raise WrongRequest(
                f"--columns {part[:60]} is not allowed; allowed: OURS=THEIRS, ours one of {', '.join(NAMES)}"
            )
        said[ours] = theirs
    return said


def _as_json(log: Log) -> dict[str, Any]:
    from gradstudio.session.files import summary
    from gradstudio.session.files.log_reading.missing_columns import OF_A_WATCH, missing_quantities

    blind = {quantity: {"rules": list(rules), "log": how} for quantity, rules, how in missing_quantities(log.columns)}
    more = {
        "columns": dict(log.columns),
        "unused": list(log.unused),
        "lacking": blind,
        "only_watched": list(OF_A_WATCH),
    }
    return summary.summarize(log.run) | more


def _tell(log: Log) -> None:
    from gradstudio.core.text import plural
    from gradstudio.session.files.log_reading.missing_columns import OF_A_WATCH, missing_quantities
    from gradstudio.session.words.story import in_words

    taken = ", ".join(f"{ours} = {theirs}" for ours, theirs in log.columns.items())
    say(f"{in_words(log.run)}\n\ncolumns    {taken}")
    for note in log.notes:
        say(f"note       {printable(note)}")
    if log.unused:
        say(f"not used   {', '.join(log.unused[:12])}{' …' if len(log.unused) > 12 else ''}")
    if not log.run.findings:
        say("no rule found anything in these columns")
    if len(log.run.history) < ENOUGH:
        say(f"few rows: rules look at {ENOUGH} and more before they call a loss stuck")
    blind = missing_quantities(log.columns)
    if blind:
        say("\nnot in the log, so these rules saw nothing; log it next time:")
        table(("", "", ""), [(f"  {quantity}", ", ".join(rules), how) for quantity, rules, how in blind])
    count = plural(len(OF_A_WATCH), "more rule reads", "more rules read")
    birth = "" if log.run.first_nonfinite_step is None else " and the operation that made the first NaN"
    say(f"\n{count} what no log has, such as each layer{birth}: gradstudio watch train.py")

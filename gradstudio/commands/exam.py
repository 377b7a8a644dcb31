"""`gradstudio exam`: make an exam, a run whose cause is hidden, and take one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gradstudio.commands.options import LibraryFile
from gradstudio.commands.request import read_request
from gradstudio.commands.terminal import WrongRequest, complain, say
from gradstudio.commands.whole_runs import train_whole

if TYPE_CHECKING:
    pass

RANDOM = "random"

app = typer.Typer(help="Make an exam, a run whose cause is hidden; take one.", rich_markup_mode=None)


Source = Annotated[
    str, typer.Argument(metavar="SOURCE", help="A preset, a file, a run, or the word random: a fault as drawn.")
]
Seed = Annotated[
    int, typer.Option(metavar="N", min=0, max=2**31 - 1, help="Draws the fault and the order of the choices.")
]
Cause = Annotated[
    str, typer.Option(metavar="TEXT", help="The right diagnosis in your words; else that of the first finding.")
]
Fix = Annotated[list[str] | None, typer.Option("--fix", metavar="KNOB=VALUE", help="A fix that holds. Repeatable.")]
Changes = Annotated[
    int, typer.Option(metavar="N", min=0, max=20, help="Most knobs that a fix may change; 0: two to spare.")
]
Lock = Annotated[
    list[str] | None,
    typer.Option("--lock", metavar="KNOB", help="A knob or section that may not be changed. Repeatable."),
]
Show = Annotated[
    list[str] | None,
    typer.Option("--show", metavar="KNOB", help="A knob or section whose values are told. Repeatable."),
]


@app.command("new")
def new(
    source: Source,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The exam, such as monday.exam.")],
    seed: Seed = 0,
    title: Annotated[str, typer.Option(metavar="TEXT", help="Its title.")] = "",
    cause: Cause = "",
    fix: Fix = None,
    changes: Changes = 0,
    tries: Annotated[int, typer.Option(metavar="N", min=1, max=50, help="Most tries.")] = 6,
    lock: Lock = None,
    show: Show = None,
    library: LibraryFile = None,
) -> None:
    """Make an exam and write it, after three seeds have shown that its run is broken and that a fix heals it."""
    from gradstudio.core.exam import check_name
    from gradstudio.session.course import exam_making
    from gradstudio.session.files import output

    if out.exists():
        raise WrongRequest(f"{out} is there already; name another with --out")
    for name in [*(lock or []), *(show or [])]:
        check_name(name)
    if source == RANDOM:
        given = {"--title": title, "--cause": cause, "--fix": fix, "--changes": changes, "--lock": lock, "--show": show}
        if odd := [name for name, value in given.items() if value]:
            raise WrongRequest(f"{odd[0]} does not go with a random exam; allowed: --seed, --tries, --out")
        output.check_folder(out.parent)  # before anything is trained for nothing
        exam = exam_making.draw_exam(seed, train_whole, complain, tries=tries)
    else:
        asked = read_request(source, library, None, None, {}, beginning=True)
        output.check_folder(out.parent)
        exam = exam_making.of(
            asked.preset, seed, train_whole, complain, title=title, cause=cause, fix=fix or (), changes=changes,
            tries=tries, locked=lock or (), shown=show or (),
        )  # fmt: skip
    for path in output.write_together({out: exam.to_toml()}):
        say(str(path))


@app.command("take")
def take(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The exam.")],
    name: Annotated[str, typer.Option(metavar="NAME", help="Whose answer sheet it is.")] = "",
    out: Annotated[
        Path | None, typer.Option(metavar="SHEET", help="The answer sheet; one that is there is continued.")
    ] = None,
) -> None:
    """Take an exam in the terminal, one command after the other, such as `try optimizer.lr=0.1`; `help` lists them."""
    from gradstudio.commands.exam_prompt import ExamPrompt
    from gradstudio.core import exam as exams
    from gradstudio.core.text import clean
    from gradstudio.session.course import exam_taking

    exam, name = exams.read(file), clean(name.strip())
    path = out or file.with_suffix(".answers.toml")
    sheet = exam_taking.read(path) if path.exists() else None
    if sheet is None and not 0 < len(name) <= exam_taking.LONGEST_NAME:
        raise WrongRequest(f"--name has {len(name):,} characters; allowed: 1 to {exam_taking.LONGEST_NAME}")
    if sheet is not None and name not in ("", sheet.name):
        raise WrongRequest(f"{path} is the answer sheet of {sheet.name}; name another with --out, or leave out --name")
    attempt = exam_taking.Attempt(exam, name, sheet)
    if attempt.sheet.fix > 0:
        raise WrongRequest(f"{path} is handed in already; name another sheet with --out")
    ExamPrompt(attempt, path).go()

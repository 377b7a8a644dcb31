"""`gradstudio crash`: shows a crash file, replays its step, minimizes it, and tries fixes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gradstudio.commands.options import HELP, Json, LibraryFile, RunName, open_library
from gradstudio.commands.terminal import WrongRequest, complain, say, say_file, say_json, table

if TYPE_CHECKING:
    from gradstudio.session.files.crash_answers import StepOperation
    from gradstudio.session.files.crash_file import CrashFile, Structure

app = typer.Typer(
    help="Look into a crash file, make its step again, make it smaller, try fixes. Code of a model is never run.",
    context_settings=HELP, rich_markup_mode=None,
)  # fmt: skip
File = Annotated[Path, typer.Argument(metavar="FILE", help="A crash file that the watch has written.")]
Trust = Annotated[bool, typer.Option("--trust", help="Make the calls though their memory cannot be told beforehand.")]
Device = Annotated[str, typer.Option("--device", metavar="cpu|cuda", help="Where the step is made again.")]


@app.command(help="List what a crash file holds, before it is sent to anybody.")
def show(file: File, as_json: Json = False) -> None:
    from gradstudio.session.files.crash_answers import contents

    crash = _read(file)
    if as_json:
        say_json(crash.structure.model_dump())
        return
    table(("", ""), contents(crash))


@app.command(help="Make the recorded steps again, and compare with what they gave. Exit code 1: something differs.")
def replay(
    file: File,
    operations: Annotated[bool, typer.Option("--operations", help="List the operations of the fatal step.")] = False,
    device: Device = "",
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    from gradstudio.crash import recorded_training, step_operations
    from gradstudio.session.files.crash_answers import COLUMNS, ReplayedStep, cells

    crash = _able(file)
    place = _device(crash, device)
    rows: list[StepOperation] = []
    with _one_line(crash):
        recorded = _recorded(crash, trust)
        if operations:
            birth, rows = step_operations.operations(recorded, place)
        else:
            birth = recorded_training.replay_steps(recorded_training.Training(recorded, place))
    same = _alike(crash.structure, birth.model_dump())
    if as_json:
        say_json(ReplayedStep(same=same, born=birth, recorded=crash.structure.born, operations=rows).model_dump())
    else:
        if rows:
            table(COLUMNS, [cells(each) for each in rows])
        say(f"{'the same' if same else 'differs'}: {birth.words}")
        if not same and crash.structure.born is not None:
            say(f"recorded: {crash.structure.born.words}")
            made_with = f"torch {crash.structure.versions.get('torch', '?')} on {crash.structure.device}"
            say(f"recorded with {made_with}; here torch {recorded_training.TORCH} on {place}")
    raise typer.Exit(0 if same else 1)


@app.command(help="Find the fewest calls and examples that still give it, as a plain script.")
def shrink(
    file: File,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Where to write it.")] = None,
    trust: Trust = False,
) -> None:
    from gradstudio.core import files
    from gradstudio.crash.shrinking import shrink

    crash = _able(file)
    with _one_line(crash):
        result = shrink(_recorded(crash, trust))
    if out is None:
        say_file(result.script)
    else:
        files.write_whole(out, result.script)
    complain(result.words)


@app.command(help="Try fixes from the recorded state on; say the lines of code of those that hold.")
def fixes(file: File, device: Device = "", trust: Trust = False, as_json: Json = False) -> None:
    from gradstudio.crash.crash_fixes import try_fixes
    from gradstudio.session.files import crash_reading
    from gradstudio.session.files.crash_file import earlier_of

    crash = _able(file)
    with _one_line(crash):
        others = [_recorded(each, trust) for each in crash_reading.of_other_ranks(crash)]
        result = try_fixes(_recorded(crash, trust), _device(crash, device), others=others)
    if as_json:
        say_json([each.as_json() for each in result.trials])
        return
    say(result.words)
    if not any(each.holds for each in result.trials) and (earlier := earlier_of(file, crash.structure.run)) is not None:
        say(f"  {earlier.name} beside it is of an earlier step of this run")
    for each in result.trials:
        say(f"  {each.words}")
        for line in each.change.lines if each.holds else ():
            say(f"      {line}")


def record(run: RunName, library: LibraryFile = None) -> None:
    with open_library(library) as kept:
        kept.request(run_id := kept.find(run), "record", 1.0)
    say(f"asked {run_id}; the script says where the file is, once it has made its next step")


def _read(file: Path) -> CrashFile:
    from gradstudio.session.files import crash_file, crash_reading

    try:
        return crash_reading.read(file)
    except crash_file.CrashFileError as fault:
        raise WrongRequest(str(fault)) from None


def _able(file: Path) -> CrashFile:
    """Return a crash file whose steps can be replayed."""
    from gradstudio.session.files import crash_file

    crash = _read(file)
    if crash.structure.unknown or not crash.structure.steps:
        others = crash_file.other_ranks(file, crash.structure.ranks)
        hint = "".join(f"; {each.name} beside it is of rank {rank}" for rank, each in others.items())
        why = crash.structure.unknown or "it has none"
        raise WrongRequest(f"{file.name}: its steps cannot be made again: {why}{hint}")
    return crash


def _recorded(crash: CrashFile, trust: bool) -> Any:
    from gradstudio.crash import recorded_training

    return recorded_training.load(crash, trusted=trust)


class _one_line:
    """Reduces any fault in this context to one line: the requests of a file are untrusted."""

    def __init__(self, crash: CrashFile) -> None:
        self._name = crash.path.name

    def __enter__(self) -> None:
        import warnings

        warnings.simplefilter("ignore")

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, _: object) -> None:
        if isinstance(fault, Exception) and not isinstance(fault, (WrongRequest, typer.Exit)):
            told = " ".join(str(fault).split())[:160]
            raise WrongRequest(f"{self._name}: {told or type(fault).__name__}") from None


def _device(crash: CrashFile, wanted: str) -> str:
    from gradstudio.crash import recorded_training

    if wanted not in ("", "cpu", "cuda"):
        raise WrongRequest(f"--device {wanted[:40]} is not allowed; allowed: cpu, cuda")
    device_name = recorded_training.device_here(wanted or crash.structure.device)
    if wanted == "cuda" and device_name == "cpu":
        raise WrongRequest("--device cuda: there is none here")
    return device_name


def _alike(structure: Structure, birth: dict[str, Any]) -> bool:
    """Return whether it was born in the same call of the same step."""
    before = structure.born.model_dump() if structure.born else None
    return before is not None and all(before[name] == birth[name] for name in ("step", "phase", "call", "do", "module"))

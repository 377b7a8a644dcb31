"""`gradstudio presets check` trains what presets promise, over seeds that were not chosen for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from gradstudio.commands import exit_codes
from gradstudio.commands.agreement import Trust, agree
from gradstudio.commands.options import Json
from gradstudio.commands.terminal import WrongRequest, complain, say, say_json, table
from gradstudio.commands.whole_runs import train_whole

if TYPE_CHECKING:
    from gradstudio.core.presets import Preset
    from gradstudio.session.course.promises import Check

ALL = "all"
MOST_SEEDS = 100
FIRST_SEED, LAST_SEED = 1001, 2**31 - 1 - MOST_SEEDS  # 1001 as in session/course/promises.py, which loads slowly
NO_PROMISE = "it has no [promise], so there is nothing to check"


class PromiseCheck(NamedTuple):
    """Outcome of checking the promise of a preset."""

    preset: Preset
    checks: dict[int, list[Check]]  # for each seed

    @property
    def faults(self) -> list[dict[str, Any]]:
        return [
            {"seed": seed, "what": check.what, "why": check.fault}
            for seed, checks in self.checks.items()
            for check in checks
            if check.fault
        ]

    def seeds_with(self, *kinds: str) -> str:
        """Return for how many seeds a part of the promise holds, such as 5 of 5; "" if it does not promise that."""
        held = [not check.fault for checks in self.checks.values() for check in checks if check.kind in kinds]
        return f"{sum(held)} of {len(held)}" if held else ""

    @property
    def seconds(self) -> float:
        """Return the mean CPU time of a seed."""
        total = sum(check.seconds for checks in self.checks.values() for check in checks)
        return total / max(len(self.checks), 1)


def check(
    source: Annotated[str, typer.Argument(metavar="ID|FILE.toml|all", help="A preset's id, a TOML file, or all.")],
    seeds: Annotated[
        int, typer.Option("--seeds", metavar="N", min=1, max=MOST_SEEDS, help="Number of seeds; never the preset's.")
    ] = 5,
    first: Annotated[
        int, typer.Option("--first", metavar="SEED", min=0, max=LAST_SEED, help="The first seed.")
    ] = FIRST_SEED,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print the table as Markdown.")] = False,
    as_json: Json = False,
    trust: Trust = False,
) -> None:
    """Train what a preset promises: it breaks as it says, its fix heals it, each wrong fix leaves it broken, and its
    lesson can be done. Exit code: 0 all of it holds for every seed, 1 a part does not, 2 wrong request, 130
    interrupted."""
    chosen = _sources(source)
    for preset in chosen:
        agree(preset.experiment, trusted=trust)
    outcomes = [_check(preset, seeds, first) for preset in chosen]
    if as_json:
        say_json([_as_json(each) for each in outcomes])
    elif as_markdown:
        say("\n".join(_as_markdown(outcomes)))
    else:
        table(HEAD, [_row(each) for each in outcomes], headed=True)
        for each in outcomes:
            for fault in each.faults:
                say(f"{each.preset.id}, seed {fault['seed']}, {fault['what']}: {fault['why']}")
    raise typer.Exit(exit_codes.FAILED if any(each.faults for each in outcomes) else exit_codes.FINISHED)


HEAD = ("ID", "Breaks", "Heals", "Wrong fixes fail", "Lesson")


def _sources(source: str) -> list[Preset]:
    """Return the presets to check, each with a promise; WrongRequest if there is none."""
    from gradstudio.core import presets

    if source != ALL:
        preset = presets.load(source)
        if preset.promise is None:
            raise WrongRequest(f"{source[:80]}: {NO_PROMISE}")
        return [preset]
    checked = []
    for path in presets.available():
        try:
            preset = presets.read(path)
        except presets.PresetError as fault:
            complain(f"left out: {fault}")
            continue
        if preset.promise is None:
            complain(f"left out: {path}: {NO_PROMISE}")
        else:
            checked.append(preset)
    return checked


def _check(preset: Preset, count: int, first: int) -> PromiseCheck:
    """Train a preset with `count` seeds, and print the result of each on stderr."""
    from gradstudio.session.course import promises

    checks: dict[int, list[Check]] = {}
    for seed in promises.seeds(preset, count, first):
        checks[seed] = list(promises.check(preset, seed, train_whole))
        wrong = [f"{check.what}: {check.fault}" for check in checks[seed] if check.fault]
        complain(f"{preset.id}, seed {seed}: {'; '.join(wrong) if wrong else 'all of its promise holds'}")
    return PromiseCheck(preset, checks)


def _row(outcome: PromiseCheck) -> tuple[str, ...]:
    return (
        outcome.preset.id, outcome.seeds_with("breaks"), outcome.seeds_with("heals", "healthy"),
        outcome.seeds_with("wrong fix"),
        outcome.seeds_with("lesson"),
    )  # fmt: skip


def _as_markdown(outcomes: list[PromiseCheck]) -> list[str]:
    head = [f"| {' | '.join(HEAD)} |", f"|{'---|' * len(HEAD)}"]
    return head + [f"| {' | '.join(_row(each))} |" for each in outcomes]


def _as_json(outcome: PromiseCheck) -> dict[str, Any]:
    return {
        "id": outcome.preset.id,
        "holds": not outcome.faults,
        "seeds": list(outcome.checks),
        "faults": outcome.faults,
        "seconds": outcome.seconds,
        "checks": [
            {"seed": seed, "kind": check.kind, "what": check.what, "holds": not check.fault}
            for seed, checks in outcome.checks.items()
            for check in checks
        ],
    }

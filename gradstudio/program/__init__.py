"""The plain PyTorch program of an experiment: what a good engineer would write by hand. It prints the numbers of the
run.

The program repeats the operations of the run in their order. On the CPU of one machine, in fp32 and bf16, its losses
are those of the run to the last bit. The gradient norm is a sum, which the run computes in another order: it agrees to
the nine digits that are printed. In fp16 both agree to about five digits.

reference/ is the program with every knob in it; specialise.py derives the one of an experiment from it. May use core.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from gradstudio.core import mistakes
from gradstudio.core.events import Change
from gradstudio.core.experiment import Experiment
from gradstudio.core.files import RESOURCES
from gradstudio.core.text import one_line
from gradstudio.program import own_file, tidy
from gradstudio.program.expressions import literal
from gradstudio.program.parsed_source import Source
from gradstudio.program.plan import Plan, variable
from gradstudio.program.specialise import Specialiser

PARTS = (
    "settings", "device", "data", "policy_batches", "layers", "models", "losses", "weights", "clipping", "ranks",
    "update_rules", "optimizers", "pieces", "sharpness_aware", "step",
)  # fmt: skip


def script(experiment: Experiment, timeline: Sequence[Change] = (), *, title: str = "", threads: str = "1") -> str:
    """Return the program, ending in a newline. `threads` is the number of CPU threads: another number sums in another
    order."""
    plan, file = Plan(experiment, timeline, threads), experiment.studio_file
    docstring = _docstring(title or (file.title if file else ""), int(experiment.distributed.ranks))
    settings = Specialiser(source(PARTS[:1]), plan).program()
    body = Specialiser(source(PARTS[1:]), plan).program()
    idle = [name for name in plan.changing_knobs() if f"knobs.{name}" not in body]
    if idle:
        acting = [change for change in timeline if variable(change.knob) not in idle]
        return script(experiment, acting, title=title, threads=threads)
    body = _changes(plan) + body
    if file is None:
        imports, text = tidy.split(f"{settings}\n{body}")
        above = tidy.imports(imports, sys.stdlib_module_names)
        return _filled(f"{docstring}\n{above}\n\n{tidy.space_out(text)}\n", plan)
    imports, text = tidy.split(body)
    loop = _filled(tidy.space_out(text), plan)
    first = f"{tidy.split(settings)[1].strip()}\ntorch.manual_seed({experiment.run.seed})"
    return own_file.around(file, docstring, first, imports, loop)


def run_until_step(plan: Plan, parts: tuple[str, ...], names: dict[str, Any]) -> dict[str, Any]:
    """Run everything in these parts of a program before the first step, in the namespace `names`. Return the namespace,
    including `one_step`, which makes a step."""
    imports, text = tidy.split(Specialiser(source(parts), plan).program())
    before, _, step = text.partition("\nfor step in range(")
    lines = [*imports, before, "def one_step(step=0):", *step.split("\n")[1:]]
    exec(compile("\n".join(lines), "train.py", "exec"), names)
    return names


def run_reference(experiment: Experiment, timeline: Sequence[Change] = (), threads: str = "1") -> None:
    """Run the reference as it is, part by part, with these knobs; it prints the same as the program of the
    experiment."""
    plan = Plan(experiment, timeline, threads)
    changes = [(change.step, variable(change.knob), change.value) for change in plan.timeline]
    names = {
        "knobs": plan.start,
        "plan": plan,
        "TIMELINE": changes,
        "inline": lambda function: function,
        "__name__": "reference",
    }
    for part in PARTS:
        lines = [line for line in source((part,)).lines if not line.startswith("from gradstudio")]
        exec(compile("\n".join(lines), f"reference/{part}.py", "exec"), names)


def data_files(program: str) -> list[Path]:
    """Return the bundled data sets that a program reads, and looks for beside itself."""
    return [RESOURCES / "data" / name for name in re.findall(r'data_file\("([^"]+)"\)', program)]


def read_ahead() -> None:
    """Parse the reference in advance, so that the first program is written sooner."""
    for parts in (PARTS[:1], PARTS[1:]):
        source(parts)


@cache
def source(parts: tuple[str, ...]) -> Source:
    """Return these files of the reference as one text."""
    folder = Path(__file__).parent / "reference"
    return Source("\n".join((folder / f"{part}.py").read_text(encoding="utf-8") for part in parts))


def _docstring(title: str, ranks: int) -> str:
    start = f"Start it with: torchrun --nproc-per-node {ranks} train.py\n\n" if ranks > 1 else ""
    name = one_line(title).replace("\\", "").replace('"', "'")  # cannot end the docstring that contains it
    return (
        f'"""{name or "Training"} in plain PyTorch.\n\n{start}Prints step, loss and gradient norm (before '
        'clipping, nine digits) of every step.\n"""\n'
    )


def _changes(plan: Plan) -> str:
    """Return the table of live changes, and the values that they change."""
    names = plan.changing_knobs()
    if not names:
        return ""
    changes = [(change.step, variable(change.knob), change.value) for change in plan.timeline]
    table = [f"    ({step}, {literal(name)}, {literal(value)})," for step, name, value in changes if name in names]
    values = ", ".join(f"{name}={literal(getattr(plan.start, name))}" for name in names)
    above = ["from types import SimpleNamespace", "TIMELINE = [  # from this step on, this knob has this value"]
    return "\n".join([*above, *table, "]", f"knobs = SimpleNamespace({values})", ""])


def _filled(text: str, plan: Plan) -> str:
    """Return a program with the values of knobs filled into its comments, and the notes on its mistakes."""

    def noted(match: re.Match[str]) -> str:
        note = mistakes.note(f"mistakes.{match[1]}", plan.experiment)
        idle = note.startswith(mistakes.NO_EFFECT) and not plan.timeline
        return f"{mistakes.MARK} {match[1]}: {note if idle else match[2]}"

    text = re.sub(rf"{mistakes.MARK} (\w+): (.*)", noted, text)
    values = {"knobs": plan.states[0], "plan": plan}
    return re.sub(r"\{(knobs|plan)\.(\w+)\}", lambda found: str(getattr(values[found[1]], found[2])), text)

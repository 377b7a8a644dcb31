"""The result of replaying the steps in a crash file, in the JSON form of `gradstudio crash`; and running that in a
separate process, so that nothing in a file can harm the caller."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from gradstudio.core import python_process
from gradstudio.core.strict_json import Number
from gradstudio.core.text import first_line, join_with_and, number, percent, plural, shorten
from gradstudio.session.files import crash_file
from gradstudio.session.files.crash_file import CrashFile, CrashFileError, Name, RecordedBirth, StoredTensor, StrictPart

_MAIN = "from gradstudio.cli import main; main()"
LONGEST = 240  # characters of the process's last message


class Entries(StrictPart):
    """The entries of a tensor. `counts` are those of bins of equal width from `least` to `greatest`, the ends of its
    finite entries, "nan" without any; `bad` is the position of its first non-finite entry."""

    shape: list[int]
    dtype: Name
    least: Number
    greatest: Number
    mean: Number
    std: Number
    norm: Number
    zeros: int
    nan: int
    inf: int
    size: int
    counts: list[int]
    bad: list[int]

    @property
    def share(self) -> float:
        """The share of non-finite entries."""
        return (self.nan + self.inf) / max(self.size, 1)

    @property
    def words(self) -> str:
        """How many entries are non-finite, and where the first is; "" if all are finite."""
        counts = [f"{count:,} {name}" for count, name in ((self.nan, "NaN"), (self.inf, "Inf")) if count]
        if not counts:
            return ""
        where = f"; the first is at {self.bad}" if self.bad else ""
        return f"{' and '.join(counts)} of {plural(self.size, 'entry', 'entries')}{where}"


class StepOperation(StrictPart):
    """A call of the step, or one of its inputs: then `call` is -1. `gradient` is that of the loss with respect to its
    result."""

    call: int
    do: Name
    module: Name = ""
    line: Name = ""
    entries: Entries
    gradient: Entries | None = None


class ReplayedStep(StrictPart):
    """The replayed fatal step. `same`: the value was born in the same call as in the recording."""

    same: bool
    born: RecordedBirth
    recorded: RecordedBirth | None
    operations: list[StepOperation]


class TriedFix(StrictPart):
    """The result of one fix: `lines` are its code."""

    fix: Name
    held: bool
    updates: int
    broke_at: int | None
    loss: float | None
    update: float | None
    lines: list[str]
    fault: str
    words: str


Answer = TypeVar("Answer")
REPLAYED: TypeAdapter[ReplayedStep] = TypeAdapter(ReplayedStep)
FIXES: TypeAdapter[list[TriedFix]] = TypeAdapter(list[TriedFix])


def ask(
    path: Path, kind: TypeAdapter[Answer], *command: str, stopped: Callable[[], bool] = lambda: False
) -> Answer | None:
    """Return the output of `gradstudio crash` for a file; None if it is stopped. CrashFileError with its one-line error
    if it has no output."""
    child = python_process.start(
        python_process.command(_MAIN, "crash", *command, "--json", "--", str(path)), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    streams = python_process.output(child, stopped)
    if streams is None:
        return None
    said, errors = streams
    try:
        return kind.validate_json(said, strict=True)
    except ValidationError as fault:
        lines = errors.decode(errors="replace").strip().splitlines()
        told = shorten(lines[-1].removeprefix("error: "), LONGEST) if lines else ""
        why = told or first_line(fault, LONGEST)
        raise CrashFileError(why if child.returncode > 0 else f"{path.name}: its process ended: {why}") from None


def contents(crash: CrashFile) -> list[tuple[str, str]]:
    """Return the contents of a crash file, as names and texts."""
    structure = crash.structure
    weights = [crash.tensors[name] for name in structure.weights.values()]
    batch = {name for step in structure.steps for each in step.passes for name in each.tensors.values()}

    programs = structure.programs

    def size(tensors: Iterable[StoredTensor]) -> str:
        return f"{sum(each.size for each in tensors):,} bytes"

    return [
        ("reason", structure.reason.replace("\n", " ")),
        ("step", f"{structure.step:,} of {structure.run or 'a run'}"),
        ("script", f"{structure.script}, SHA-256 {structure.script_sha256[:16]}" if structure.script else "not known"),
        (
            "code",
            ", ".join(f"{name} ({digest[:8]})" for name, digest in structure.code.items()) or "torch's own modules",
        ),
        ("made with", ", ".join(f"{name} {version}" for name, version in structure.versions.items())),
        ("device", structure.device),
        *_of_ranks(crash),
        ("weights", f"{plural(len(weights), 'tensor', 'tensors')}, {size(weights)}"),
        ("optimizer", ", ".join(f"{each.kind}, {sum(map(len, each.groups))} weights" for each in structure.optimizers)),
        ("steps", ", ".join(f"{step.number:,}" for step in structure.steps) or "none can be made again"),
        ("batches", f"{plural(len(batch), 'tensor', 'tensors')}, {size([crash.tensors[name] for name in batch])}"),
        ("calls", f"{sum(map(len, programs)):,} in {plural(len(programs), 'pass', 'passes')}, all of torch"),
        ("born", structure.born.words if structure.born else f"not made again: {structure.unknown}"),
    ]


def _of_ranks(crash: CrashFile) -> list[tuple[str, str]]:
    """Return which part of the weights a file contains, if each rank has written its own file."""
    found = crash.structure
    if not found.whole:
        return []
    beside = [str(rank) for rank in crash_file.other_ranks(crash.path, found.ranks)]
    told = f"beside it: {join_with_and(beside)}" if beside else "no other beside it"
    part = f"its part of {plural(len(found.whole), 'weight', 'weights')}"
    return [("rank", f"{found.rank:,} of {found.ranks:,}, {part}; {told}")]


COLUMNS = ("Operation", "Line", "Not finite", "Minimum", "Maximum", "Gradient up to", "Shape", "Module")


def cells(row: StepOperation) -> tuple[str, ...]:
    """Return an operation as texts, one for each of COLUMNS."""
    values, gradient = row.entries, row.gradient
    size = " × ".join(map(str, values.shape)) or "one number"
    ends = [number(float(each)) if each != "nan" else "–" for each in (values.least, values.greatest)]
    return (
        row.do.removeprefix("torch."), row.line, _not_finite(values), *ends,
        (_not_finite(gradient) or _largest(gradient)) if gradient else "", f"{values.dtype} {size}", row.module,
    )  # fmt: skip


def _not_finite(entries: Entries) -> str:
    return f"{percent(entries.share)} {'NaN' if entries.nan else 'Inf'}" if entries.share else ""


def _largest(gradient: Entries) -> str:
    return number(max(abs(float(gradient.least)), abs(float(gradient.greatest))))

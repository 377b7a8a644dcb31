"""Crash files: the state of a watched training before its fatal step, and the steps from there, in one file. The format
is safetensors: tensors as they are, and the structure as JSON in its header. It can be inspected without torch;
crash_reading.py reads it."""

from __future__ import annotations

import glob
import json
import math
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from gradstudio.core import files
from gradstudio.core.strict_json import Number

VERSION = 1
MOST_CLASSES = 2000  # of a model, that are named
MOST_STEPS, MOST_CALLS = 1001, 100_000  # and calls of a pass: no recorder comes near them, and more takes minutes
MOST_RANKS = 1024  # whose files are looked for
KEY = "gradstudio_crash"  # of the structure in the metadata of the header
BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "I16": 2, "I32": 4, "I64": 8, "F16": 2, "BF16": 2, "F32": 4, "F64": 8,
    "F8_E4M3": 1, "F8_E5M2": 1, "C64": 8,
}  # fmt: skip

Name = Annotated[str, Field(max_length=300)]
Text = Annotated[str, Field(max_length=1000)]


class CrashFileError(ValueError):
    """A file that is not a crash file, or a damaged one. One line for the user."""


class StrictPart(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class PlainCall(StrictPart):
    """One call of a torch function. In arguments, {"t": 3} is the tensor from an earlier call, {"t": "w:fc.bias"} a
    weight and {"t": "i:0"} a tensor of the batch. `gives` are the numbers of the tensors in its result, -1 for one that
    existed before; None for a call that raised. `module` is the active part of the model, `line` the line of code,
    `autocast` the autocast setting, `random` the tensor of the batch with the random state."""

    do: Annotated[str, Field(max_length=120, pattern=r"^torch\.[A-Za-z0-9_.]+$")]
    given: list[Any]
    named: dict[Name, Any] = {}
    gives: list[Annotated[int, Field(ge=-1)]] | None = []
    module: Name = ""
    line: Name = ""
    autocast: dict[Literal["cpu", "cuda"], Name] = {}
    grad: bool = True
    random: Name = ""

    @property
    def kind(self) -> str:
        """The last part of its name."""
        return self.do.rpartition(".")[2]


class RecordedDerivative(StrictPart):
    """The derivative of a result that the script defines itself: `calls` turn tensor number `gradient` into the
    gradients of what the result was made of, `gives`."""

    gradient: int
    calls: list[PlainCall]
    gives: list[int | Name | None]


class RecordedCall(PlainCall):
    """One call of a pass. With a `derivative`, it gives that to a result of earlier calls, and `do` is its name."""

    derivative: RecordedDerivative | None = None


class RecordedPass(StrictPart):
    """One backward pass and the computation before it. `tensors` are the names in the file of the tensors of its batch;
    `root` is the tensor that the backward pass began from, -1 if there was no backward pass, and `scale` the loss scale
    on it."""

    program: Annotated[int, Field(ge=0)]
    tensors: dict[Name, Name]
    root: int
    scale: float = 1.0


class RecordedStep(StrictPart):
    """One step of the optimizers: its passes, the values of each parameter group, and what was observed of it."""

    number: Annotated[int, Field(ge=0)]
    passes: list[RecordedPass]
    groups: list[list[dict[Name, Any]]]  # of each optimizer
    clip: Literal["none", "norm", "value"] = "none"
    limit: float = 0.0
    loss: Number = "nan"
    norm: Number = "nan"


class RecordedOptimizer(StrictPart):
    """An optimizer: its class, the weights of each group, and its state for each weight; a text is the name of a
    tensor."""

    kind: Name
    groups: list[list[Name]]
    state: dict[Name, dict[Name, Any]]


class RecordedBirth(StrictPart):
    """The first non-finite value in the replayed step. `call` is its index in the program, -1 if it is not a call."""

    step: int
    phase: Literal["forward", "backward", "update", "given", "raised", "none"]
    call: int = -1
    do: Name = ""
    module: Name = ""
    line: Name = ""
    loss: Number = "nan"

    @property
    def words(self) -> str:
        """Where it was born, in one clause."""
        place = f" in module {self.module}" * bool(self.module) + f" ({self.line})" * bool(self.line)
        match self.phase:
            case "none":
                return f"all was finite; the loss of step {self.step:,} was {format_number(self.loss)}"
            case "given":
                return f"step {self.step:,} was given it: {self.do}"
            case "update":
                return f"the update of step {self.step:,} made it in {self.do}"
        return f"step {self.step:,}, {self.phase} pass, {self.do.removeprefix('torch.')}{place}"


class Structure(StrictPart):
    """Everything in a crash file except its tensors. `weights` are the names in the file of weights and buffers,
    `trained` those that require a gradient. Without a program, `unknown` says why. `born` is the result of replaying
    the step at the time."""

    version: Literal[1] = 1
    reason: Text
    step: Annotated[int, Field(ge=0)]
    run: Name = ""
    script: Name = ""
    script_sha256: Name = ""
    code: Annotated[
        dict[Name, Name], Field(max_length=MOST_CLASSES)
    ] = {}  # each class of the model, and the sha256 of its file
    versions: dict[Name, Name] = {}
    device: Name = "cpu"
    weights: dict[Name, Name] = {}
    trained: list[Name] = []
    optimizers: list[RecordedOptimizer] = []
    programs: list[Annotated[list[RecordedCall], Field(max_length=MOST_CALLS)]] = []
    steps: Annotated[list[RecordedStep], Field(max_length=MOST_STEPS)] = []
    unknown: Text = ""
    born: RecordedBirth | None = None
    rank: Annotated[int, Field(ge=0)] = 0
    ranks: Annotated[int, Field(ge=1)] = 1
    whole: dict[Name, list[int]] = {}  # shapes of the weights of which this rank has a part


class StoredTensor(NamedTuple):
    """The location of a tensor in the file. `begin` is an offset from the first byte of the file."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    size: int


class TensorToWrite(NamedTuple):
    """A tensor to be written: `write` writes its bytes into a file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    write: Callable[[BinaryIO], object]

    @property
    def size(self) -> int:
        return BYTES[self.dtype] * math.prod(self.shape)


class CrashFile(NamedTuple):
    """A validated crash file. Its tensors stay in the file until they are read."""

    path: Path
    structure: Structure
    tensors: dict[str, StoredTensor]

    @property
    def size(self) -> int:
        return sum(each.size for each in self.tensors.values())

    def read(self, name: str) -> bytearray:
        """Return the bytes of a tensor."""
        stored = self.tensors[name]
        with self.path.open("rb") as file:
            file.seek(stored.begin)
            data = bytearray(stored.size)
            size = file.readinto(data)
        if size != stored.size:
            raise CrashFileError(f"{self.path.name}: cut short while it was read")
        return data


def path_of(library: Path, run: str, step: int, rank: int = 0) -> Path:
    """Return the path of the crash file for a step of a watched run: next to the library."""
    return library.parent / "crashes" / f"{run}-{step}{f'.rank{rank}' if rank else ''}.crash"


def other_ranks(path: Path, ranks: int) -> dict[int, Path]:
    """Return the files of the same step that other ranks have written next to this one, by rank."""
    stem = path.stem.partition(".rank")[0]
    every = range(min(ranks, MOST_RANKS))
    names = {rank: path.with_name(f"{stem}{f'.rank{rank}' if rank else ''}.crash") for rank in every}
    return {rank: each for rank, each in names.items() if each != path and each.exists()}


def latest_of(library: Path, run: str) -> Path | None:
    """Return the latest crash file of a watched run."""
    pattern = path_of(library, glob.escape(run), 0).name.replace("-0.", "-[0-9]*.")
    candidates = [each for each in (library.parent / "crashes").glob(pattern) if ".rank" not in each.name]
    return max(candidates, key=lambda path: path.stat().st_mtime, default=None)


def earlier_of(path: Path, run: str) -> Path | None:
    """Return the file of the latest earlier step that the same run has written next to this one."""
    steps = {int(number): each for each in path.parent.glob(f"{glob.escape(run)}-*.crash")
             if (number := each.stem.removeprefix(f"{run}-")).isdecimal()}  # fmt: skip
    own = path.stem.removeprefix(f"{run}-")
    before = [step for step in steps if own.isdecimal() and step < int(own)]
    return steps[max(before)] if run and before else None


def write(path: Path, structure: Structure, tensors: Iterable[TensorToWrite]) -> None:
    """Write a crash file atomically."""
    tensors = list(tensors)
    header: dict[str, Any] = {"__metadata__": {KEY: json.dumps(structure.model_dump(), allow_nan=False)}}
    at = 0
    for each in tensors:
        header[each.name] = {"dtype": each.dtype, "shape": list(each.shape), "data_offsets": [at, at + each.size]}
        at += each.size
    text = json.dumps(header, allow_nan=False).encode()
    text += b" " * (-len(text) % 8)

    def put(file: BinaryIO) -> None:
        file.write(struct.pack("<Q", len(text)) + text)
        for each in tensors:
            each.write(file)

    files.write_whole(path, put)


def format_number(value: Number) -> str:
    """Return a number for display."""
    return f"{value:.6g}" if isinstance(value, float | int) else value.replace("nan", "NaN").replace("inf", "Inf")

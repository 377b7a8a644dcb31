"""A studio file: a Python file with the user's own model, data and loss, as three functions and without an import of
ours.

    def build_model(): ...                      # an nn.Module whose parameters are float32
    def get_batch(batch_size, generator): ...   # tensors, also in tuples, lists or dicts, drawn from `generator` alone
    def compute_loss(model, batch): ...         # a tensor with one number

It is parsed here without running any of it: its functions, the knobs given by their keyword defaults, and its title.
Running it is up to the engine, after the user has agreed to that (trust.py)."""

from __future__ import annotations

import ast
import difflib
import hashlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, field_validator, model_validator

from gradstudio.core import files
from gradstudio.core.knobs import Knob, KnobError, Value
from gradstudio.core.text import clean, one_line, shorten

SUFFIX = ".py"
LARGEST = 200_000  # bytes
MOST_DOTS = 200  # per line, which is the limit of strict_toml.py: a run stores the file in its TOML
MOST_KNOBS = 50
LONGEST_NAME = 60
SECTION = "model_file"  # of the knobs
MODULE = "studio_file"  # module name of the file while it runs, so that its part for `python FILE` does not
FUNCTIONS: Mapping[str, tuple[str, ...]] = {
    "build_model": (),
    "get_batch": ("batch_size", "generator"),
    "compute_loss": ("model", "batch"),
}
_KINDS: Mapping[type, Literal["bool", "int", "float", "text"]] = {
    bool: "bool", int: "int", float: "float", str: "text",
}  # fmt: skip
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class StudioFileError(KnobError):
    """A studio file that cannot be trained. One line for the user: the file, the line and what is required."""


@dataclass(frozen=True)
class Reading:
    """What a text declares without being run: its title, its knobs by dotted name, and those of each function."""

    title: str
    knobs: Mapping[str, Knob]
    arguments: Mapping[str, tuple[str, ...]]  # by function: the names of its keyword arguments that are knobs
    no_knobs: Mapping[str, int]  # the other keyword arguments, each with its line


class StudioFile(BaseModel):
    """The text of a studio file, as an experiment carries it."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    name: str  # of the file, without its folder
    sha256: str  # of the text that the user agrees to running
    text: str

    @classmethod
    def of(cls, name: str, text: str) -> StudioFile:
        """Return a text as a studio file; StudioFileError if it is not one."""
        read(name, text)
        return cls(name=name, sha256=digest(text), text=text)

    @field_validator("text", mode="before")
    @classmethod
    def _of_lines(cls, text: object) -> object:
        """Accept lines too: TOML files store them, as a single text with line ends may lose some of them."""
        if isinstance(text, list) and all(isinstance(line, str) for line in text):
            return "\n".join(text)
        return text

    @model_validator(mode="after")
    def _is_whole(self) -> StudioFile:
        if self.name != clean(one_line(self.name)) or not 0 < len(self.name) <= 255:
            raise KnobError(f"studio_file.name = {shorten(self.name, 60)!r} is not allowed; allowed: a file's name")
        if self.sha256 != digest(self.text):
            raise KnobError("studio_file.sha256 is not that of studio_file.text; one of them was changed")
        read(self.name, self.text)
        return self

    @cached_property
    def reading(self) -> Reading:
        return read(self.name, self.text)

    @property
    def title(self) -> str:
        return self.reading.title

    @property
    def knobs(self) -> Mapping[str, Knob]:
        """The knobs of the file, by dotted name."""
        return self.reading.knobs

    @property
    def lines(self) -> list[str]:
        """The text in the form stored in a TOML file."""
        return self.text.split("\n")

    def values(self, given: Mapping[str, Any]) -> dict[str, Value]:
        """Return the values of the file's knobs that differ from their defaults; KnobError for an unknown name or a
        value of another type."""
        values: dict[str, Value] = {}
        for field, value in given.items():
            knob = self.knob(f"{SECTION}.{field}")
            if knob.kind == "float" and type(value) is int:
                value = float(value)
            if type(value) is not type(knob.default) or not _is_allowed(value):
                raise knob.error(value)
            if value != knob.default:
                values[field] = value
        return values

    def hashes(self, values: Mapping[str, Value]) -> list[str]:
        """Return the hashes of the text values of the file's knobs. The user agrees to each of them besides the file,
        as a text may be the path of a file that it loads."""
        texts = ((field, value) for field, value in values.items() if isinstance(value, str))
        return [digest(f"{self.sha256}\n{field}\n{value}") for field, value in texts]

    def knob(self, name: str) -> Knob:
        """Return the knob with this dotted name; KnobError if the file has none."""
        if name not in self.knobs:
            line = self.reading.no_knobs.get(name.removeprefix(f"{SECTION}."))
            if line is not None:
                what = f"{shorten(name, LONGEST_NAME)} is no knob: its default is no number, switch or short text"
                raise _error(self.name, line, f"{what}; wanted: such a default")
            fields = ", ".join(entry.field for entry in self.knobs.values())
            has = f"has: {fields}" if fields else "has no keyword defaults, which would be knobs"
            raise KnobError(f"unknown knob {shorten(name, LONGEST_NAME)}; {self.name} {has}")
        return self.knobs[name]


def is_named(path: Path) -> bool:
    """Return whether a path has the suffix of a studio file; some systems write it in capitals."""
    return path.suffix.lower() == SUFFIX


def load(path: Path) -> StudioFile:
    """Return the studio file at a path, without running it; StudioFileError if it cannot be read or is not one."""
    name = clean(one_line(path.name))  # it appears in messages
    try:
        data = files.read_bounded(path, LARGEST)
    except (OSError, ValueError) as fault:  # ValueError: a name that no file can have
        raise StudioFileError(f"{path}: {files.reason(fault)}") from None
    if len(data) > LARGEST:
        raise StudioFileError(f"{path}: larger than {LARGEST // 1000} kB, which is the most that a studio file may be")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        line = data[: fault.start].count(b"\n") + 1
        raise _error(name, line, f"not UTF-8 text (byte 0x{data[fault.start]:02x}); save it as UTF-8") from None
    return StudioFile.of(name, text)


def digest(text: str) -> str:
    """Return the SHA-256 of a text; for a file without a byte order mark, that of the file."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@lru_cache(maxsize=32)
def read(name: str, text: str) -> Reading:
    """Return what a text declares; StudioFileError, with its line, if it is not a studio file."""
    tree = _parse(name, text)
    functions: dict[str, _Function] = {
        node.name: node
        for node in tree.body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name in FUNCTIONS
    }
    for wanted, arguments in FUNCTIONS.items():
        if wanted not in functions:
            have = f", beside {', '.join(functions)}" if functions else ""
            what = f"wanted at its top level{have}: def {wanted}({', '.join(arguments)})"
            raise _error(name, _line_of_missing(wanted, tree, text), what)
    knobs_of = {name_of: _knobs_of(name, functions[name_of]) for name_of in FUNCTIONS}
    knobs: dict[str, Knob] = {}
    for function, own in knobs_of.items():
        for dotted, (line, knob) in own.items():
            if dotted in knobs and (knobs[dotted].default, knobs[dotted].kind) != (knob.default, knob.kind):
                raise _error(
                    name, line, f"{knob.field} has the default {knob.default!r} in {function} and "
                    f"{knobs[dotted].default!r} before; wanted: one default for one name",
                )  # fmt: skip
            knobs.setdefault(dotted, knob)
    if len(knobs) > MOST_KNOBS:
        raise StudioFileError(
            f"{name}: {len(knobs)} keyword defaults; allowed: at most {MOST_KNOBS}, for each is a knob"
        )
    arguments = {function: tuple(knob.field for _, knob in own.values()) for function, own in knobs_of.items()}
    others = {
        argument.arg: argument.lineno
        for function in functions.values()
        for argument, _ in _defaults(function.args)
        if f"{SECTION}.{argument.arg}" not in knobs
    }
    return Reading(_title(name, tree), knobs, arguments, others)


def _line_of_missing(wanted: str, tree: ast.Module, text: str) -> int:
    """Return the line of the function that was probably meant by a missing one: one with its name but not at the top
    level, or with a similar name; otherwise the last line."""
    lines = {node.name: node.lineno for node in ast.walk(tree) if isinstance(node, _Function)}
    meant = difflib.get_close_matches(wanted, lines.keys() - (FUNCTIONS.keys() - {wanted}), 1)
    return lines[meant[0]] if meant else max(len(text.splitlines()), 1)


def _parse(name: str, text: str) -> ast.Module:
    if not text.strip():
        raise StudioFileError(f"{name}: it is empty; wanted: {', '.join(FUNCTIONS)} (`gradstudio new` writes one)")
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise _error(name, line, "a byte 0, which no Python text has; wanted: a text file")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes, which are not the fault of whoever opens the file
            tree = ast.parse(text)
            compile(tree, name, "exec", dont_inherit=True)  # detects what the grammar alone does not, such as `return`
    except SyntaxError as fault:
        raise _error(name, fault.lineno or 1, f"not valid Python: {fault.msg}") from None
    except (ValueError, RecursionError, MemoryError) as fault:
        raise StudioFileError(f"{name}: not valid Python: {str(fault)[:100] or 'nested too deeply'}") from None
    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") > MOST_DOTS:
            raise _error(name, number, f"more than {MOST_DOTS} dots in a line; wanted: shorter lines")
    return tree


def _knobs_of(name: str, function: _Function) -> dict[str, tuple[int, Knob]]:
    """Return the keyword defaults of a function as knobs, each with its line; StudioFileError if the function does not
    accept the arguments it is called with."""
    wanted, given = FUNCTIONS[function.name], function.args
    signature = f"def {function.name}({', '.join(wanted)})"
    if isinstance(function, ast.AsyncFunctionDef):
        raise _error(name, function.lineno, f"{function.name} is asynchronous; wanted: {signature}")
    positional = [*given.posonlyargs, *given.args]
    required = [argument.arg for argument in positional[: len(positional) - len(given.defaults)]]
    required += [each.arg for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if default is None]
    fits = len(required) == len(wanted) and len(positional) >= len(wanted)
    if not fits:
        has = f"{function.name}({', '.join(required)})"
        raise _error(name, function.lineno, f"{has} takes other arguments; wanted: {signature}, others with a default")
    positional_only = {argument.arg for argument in given.posonlyargs}
    knobs = {}
    for argument, default in _defaults(given):
        value = _literal(default)
        if value is None or argument.arg in positional_only or len(argument.arg) > LONGEST_NAME:
            continue  # a default that is no plain number, switch or text stays as it is written
        dotted = f"{SECTION}.{argument.arg}"
        help = f"The argument {argument.arg} of {function.name} in {name}."
        knob = Knob(dotted, _KINDS[type(value)], value, argument.arg, help, "Model file", live=False)
        knobs[dotted] = (argument.lineno, knob)
    return knobs


def _defaults(given: ast.arguments) -> list[tuple[ast.arg, ast.expr]]:
    """Return the arguments that have a default, each with it."""
    positional = [*given.posonlyargs, *given.args]
    pairs = [*zip(positional[len(positional) - len(given.defaults) :], given.defaults, strict=True)]
    return pairs + [(each, value) for each, value in zip(given.kwonlyargs, given.kw_defaults, strict=True) if value]


def _literal(default: ast.expr) -> Value | None:
    """Return the default if it is a plain number, switch or short text."""
    try:
        value = ast.literal_eval(default)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    return value if type(value) in _KINDS and _is_allowed(value) else None


def _is_allowed(value: Value) -> bool:
    """Return whether a TOML file and the library can store a value."""
    if isinstance(value, str):
        return len(value) <= 200 and value == clean(value) and one_line(value) == value
    return isinstance(value, bool) or abs(value) < (2**63 if isinstance(value, int) else float("inf"))


def _title(name: str, tree: ast.Module) -> str:
    """Return the first line of the docstring, or the file's name."""
    first = one_line(clean((ast.get_docstring(tree) or "").strip().partition("\n")[0]))
    return shorten(first.rstrip("."), LONGEST_NAME) or Path(name).stem


def _error(name: str, line: int, what: str) -> StudioFileError:
    return StudioFileError(f"{name}, line {line}: {what}")

"""The common part of exercises and exams: a file with a title and a text, and a sheet with the student's answers. For
an invalid file, the first error is reported in one line."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, ClassVar, Literal, TypeVar

import tomli_w
from pydantic import Field, ValidationError

from gradstudio.core import strict_toml
from gradstudio.core.knobs import KnobError, quote
from gradstudio.core.lesson import Part, Text
from gradstudio.core.presets import LONGEST_TITLE, PresetError
from gradstudio.core.strict_toml import TomlError

LETTERS = "ABCDEFGH"  # of choices


class AssignmentError(ValueError):
    """An assignment or answer sheet that cannot be read, created or handed in. One line: which file, where, what is
    allowed."""


class Assignment(Part):
    schema_: Literal[1] = Field(alias="schema")
    title: Annotated[str, Field(max_length=LONGEST_TITLE)]
    text: Text = ""

    def check(self) -> None:
        """Raise AssignmentError, KnobError or PresetError if the assignment asks for something impossible."""


class Sheet(Part):
    """A student's answers to an assignment. `key` is the file's key for the id of the assignment."""

    key: ClassVar[str] = ""

    schema_: Literal[1] = Field(alias="schema")

    @property
    def what(self) -> str:
        """The kind and the id of the assignment, such as "exam 0123456789ab"."""
        return f"{self.key} {getattr(self, self.key)}"

    @property
    def assignment(self) -> str:
        """The id of its exercise, or "exam" and the id."""
        return self.what.removeprefix("exercise ")

    def digest(self) -> str:
        """Return the SHA-256 of everything but the seal itself. It detects accidental edits, not forgery: a forger can
        compute it too. Training again detects that."""
        table = self.model_dump(by_alias=True, exclude_none=True)
        for part in (table, table.get("handed_in", {})):
            part.pop("seal", None)
        return hashlib.sha256(tomli_w.dumps(table).encode()).hexdigest()

    def to_toml(self) -> str:
        return tomli_w.dumps(self.model_dump(by_alias=True, exclude_none=True), multiline_strings=True)


Kind = TypeVar("Kind", bound=Part)


def read(path: Path, *kinds: type[Kind], most: int = strict_toml.LARGEST_FILE) -> Kind:
    """Return the sheet or assignment in a file of at most `most` bytes; AssignmentError names the first error. If
    several kinds are given and the file has the key of none, the last kind is used."""
    try:
        if path.stat().st_size > most:
            raise AssignmentError(f"{path}: larger than {most // 1000} kB, which is the most that is read")
        table = strict_toml.parse(strict_toml.read(path))
        kind = next((each for each in kinds if issubclass(each, Sheet) and each.key in table), kinds[-1])
        parsed = kind.model_validate(table)
        if isinstance(parsed, Assignment):
            parsed.check()
    except (OSError, TomlError) as fault:
        raise AssignmentError(f"{path}{fault if isinstance(fault, TomlError) else ': cannot be read'}") from None
    except ValidationError as fault:
        first = fault.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        wrong = f"{where} = {quote(first['input'])} is not allowed; {first['msg'].lower()}"
        raise AssignmentError(f"{path}: {wrong}") from None
    except (KnobError, PresetError) as fault:
        raise AssignmentError(f"{path}: {fault}") from None
    return parsed

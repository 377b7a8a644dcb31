"""`gradstudio new` writes an initial studio file."""

from __future__ import annotations

import os
import re
import shlex
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gradstudio.commands.terminal import WrongRequest, say
from gradstudio.core import files

SUFFIX = ".py"


class Kind(StrEnum):
    """The kind of training in the file."""

    mlp = "mlp"
    image = "image"
    language = "language"


def new(
    file: Annotated[Path, typer.Argument(metavar="FILE.py", help="The file to write; it must not be there yet.")],
    kind: Annotated[
        Kind, typer.Option("--kind", help="mlp: a small network; image: convolutions; language: a transformer.")
    ] = Kind.mlp,
) -> None:
    """Write a studio file to start from: your own model, data and loss, as three functions."""
    if file.suffix.lower() != SUFFIX:
        raise WrongRequest(f"{file} is not allowed; allowed: a name that ends in {SUFFIX}")
    text = (files.RESOURCES / "studio_files" / f"{kind}.txt").read_text(encoding="utf-8")
    if os.path.lexists(file):
        raise WrongRequest(f"{file} is there already; choose another name")
    if re.fullmatch(r"[\w.-]+", file.name):
        text = text.replace("FILE", _as_argument(file.name))
    try:
        files.write_whole(file, text)
    except (OSError, ValueError) as fault:  # ValueError: a name that no file can have
        raise WrongRequest(f"{file} cannot be written: {files.reason(fault)}") from None
    say(f"wrote {file}; to train it: gradstudio run {shlex.quote(_as_argument(str(file)))} --trust")


def _as_argument(file: str) -> str:
    """Return a file's name in the form of an argument, as a command would read one that begins with - as an option."""
    return f"./{file}" if file.startswith("-") else file

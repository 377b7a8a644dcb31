"""The script whose training a run watched, as far as it is known. Its other facts are in the run's rows and
settings."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WatchedScript:
    """The script of a watched run. `facts` are name and value of what was read from it, such as its optimizer: the
    knobs of the run's experiment have these values, and knobs without a fact are meaningless. Secrets among the
    arguments are masked, including those in an argument file."""

    script: str  # name of its file; "" if there is none, for example in a notebook
    arguments: tuple[str, ...]
    sha256: str  # of its text; "" where it could not be read
    every: int  # steps of the script from one row to the next
    facts: tuple[tuple[str, str], ...]
    log: bool = False  # whether `script` is a log that was read after the training

    def __post_init__(self) -> None:
        from gradstudio.core.masked_secrets import (
            mask_secrets,  # its patterns take some hundredths of a second to compile
        )

        object.__setattr__(self, "arguments", mask_secrets(self.arguments))

    @property
    def all_facts(self) -> list[tuple[str, str]]:
        """Everything that is known, as name and value."""
        command = shlex.join((self.script, *self.arguments)) if self.script else "not known"
        digest = " ".join(re.findall(".{1,16}", self.sha256)) or "not known"  # in parts, so that a line can break
        if self.log:
            return [("log", self.script), *self.facts]
        facts = [("script", command), ("SHA-256", digest), *self.facts]
        return [*facts, ("recorded", self.rows_in_words)] if self.every > 1 else facts

    @property
    def rows_in_words(self) -> str:
        """Which steps of the script are rows, and how they are counted."""
        return f"one of {self.every} steps, and each that is not finite; steps are counted in rows"

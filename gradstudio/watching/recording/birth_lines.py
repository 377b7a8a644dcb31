"""The terminal output about the birth of a non-finite value, in five lines, and the reaction to it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from gradstudio.core.history import History
from gradstudio.core.provenance import Provenance, is_node, operation_of
from gradstudio.core.row import Row
from gradstudio.core.text import brief, number
from gradstudio.core.unknown import is_known
from gradstudio.watching.births.loss_code import BEFORE_THE_LOSS
from gradstudio.watching.births.skipped_batches import SkippedBatch
from gradstudio.watching.births.step_births import MADE_BY_THE_SCRIPT
from gradstudio.watching.steps.watch_options import OnNonfinite

LONGEST = 160  # characters of a line

_PHASES = {
    "forward": "forward pass", "loss": "loss code", "backward": "backward pass", "unscale": "unscaling",
    "update": "its weights before the step",
}  # fmt: skip


_ANOMALY = (
    "  to see   `torch.autograd.set_detect_anomaly(True)` at the top of the script names the operation whose "
    "derivative is NaN, slowly"
)


def birth_lines(birth: Provenance, step: int, row: Row | None = None) -> list[str]:
    """Return five lines: what is non-finite, where it was born, why, the input values, the line of code."""
    batch = f", micro-batch {birth.micro_batch + 1} of {birth.micro_batches}" if birth.micro_batches > 1 else ""
    if birth.is_of_update:
        return _print_lines(f"step {step:,} left weights that are not finite{_what(row)}", *_birth(birth))
    return _print_lines(f"step {step:,} is not finite{_what(row)}{batch}", *_birth(birth))


def skipped_lines(skipped: SkippedBatch, step: int) -> list[str]:
    """Return the lines for a non-finite batch that the script skipped, before this step."""
    head = f"before step {step:,} the script skipped a batch, without an update: {skipped.what}"
    birth = skipped.provenance
    return _print_lines(head, *(_birth(birth) if birth is not None else _unknown(skipped.unknown)))


def place_and_cause(birth: Provenance) -> str:
    """Return where a value was born, in one clause."""
    text = f"born in {_where(birth)}, because" if birth.is_birth else f"first seen in {_where(birth)}:"
    return f"{text} {birth.cause}" + (f" ({birth.source})" if birth.source else "")


def _birth(birth: Provenance) -> tuple[str, ...]:
    where = _where(birth)
    return (
        f"  born in  {where}" if birth.is_birth else f"  seen in  {where}; it may have been born before that",
        f"  {'because' if birth.is_birth else 'there  '}  {birth.cause}",
        f"  went in  {birth.taken or 'not known'}",
        f"  source   {birth.source or _unseen(birth)}",
    )


def _unseen(birth: Provenance) -> str:
    """Return the text if no line of code is known; of an update there is one call."""
    if birth.is_of_update:
        return "where the script makes that update"
    if birth.was_given:
        return "not known"
    place = "the module and the operation above name" if birth.module else "the operation above names"
    return f"not known; {place} the place"


def _print_lines(*lines: str) -> list[str]:
    return [line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…" for line in map(_printable, lines)]


def _where(birth: Provenance) -> str:
    """Return 'module 2, forward pass: addmm'."""
    if birth.was_given:
        return f"what the {'model' if birth.operation == 'input' else 'loss'} was given"
    if birth.is_of_update:
        return f"the update of the weights: {birth.operation}"
    of = birth.chain[0].of if birth.chain else ""
    derivative = f", the derivative of {_plain(of)}" if of and of != birth.operation and is_node(of) else ""
    in_loss_code = birth.phase == "loss" or (birth.phase == "backward" and is_node(birth.operation))
    where = f"module {birth.module}" if birth.module else "the script" if in_loss_code else "the model itself"
    return f"{where}, {_PHASES[birth.phase]}: {_plain(birth.operation)}{derivative}"


def _plain(operation: str) -> str:
    """Return 'addmm' for 'aten.addmm.default', and 'log or div' for 'LogBackward0 or DivBackward0'."""
    return " or ".join(map(operation_of, operation.split(" or ")))


def unknown_lines(why: str, step: int, row: Row | None = None) -> list[str]:
    """Return the lines for a value of unknown birth, and what to do to find out."""
    return _print_lines(f"step {step:,} is not finite{_what(row)}", *_unknown(why))


def _unknown(why: str) -> tuple[str, ...]:
    text = f"  {brief(f'where it was born is not known: {why}', LONGEST - 2)}"
    if BEFORE_THE_LOSS in why or why == MADE_BY_THE_SCRIPT:  # no derivative has produced it
        return (text,)
    return text, _ANOMALY


def update_lines(history: History, step: int) -> list[str]:
    """Return a line about it if the update before this step made weights non-finite."""
    before = step - 1
    if not 0 <= before < len(history):
        return []
    names = ("loss", "grad_norm", "clipped_norm", "weight_norm", "update_ratio")
    *went_in, ratio = (history.value(name, before) for name in names)
    if not all(map(math.isfinite, went_in)) or math.isfinite(ratio) or not is_known(ratio):
        return []
    return [f"  so       the update of step {before:,} made them: its gradient, and the weights before it, were finite"]


NO_UPDATE = "  so       no update was made of it: weights and optimizer are as they were before this step"


def act(lines: Sequence[str], on_nonfinite: OnNonfinite, say: Callable[[str], None]) -> None:
    """Print the lines and continue, raise a FloatingPointError with them, or do nothing."""
    if on_nonfinite == "raise":
        raise FloatingPointError("\n".join(lines))
    if on_nonfinite in ("explain", "skip"):
        for line in lines:
            say(line)


def _printable(line: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in line)


def _what(row: Row | None) -> str:
    if row is None:
        return ""
    values = (("loss", row.loss), ("gradient norm", row.grad_norm))
    texts = [f"{name} {number(value)}" for name, value in values if is_known(value)]
    return f": {', '.join(texts)}" if texts else ""

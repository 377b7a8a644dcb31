"""The loop that people write by hand: the exported script of an experiment, without what it measures and prints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradstudio.core.experiment import Experiment
from gradstudio.program import script

_TELLS = ("grads =", "grad_norm =", "print(", "if not (loss.isfinite()")


def plain_step(experiment: Experiment) -> Callable[[], None]:
    """Makes one step of the plain loop at a call. The set-up is made here."""
    return plain_loop(experiment)["one_step"]


def plain_loop(experiment: Experiment) -> dict[str, Any]:
    """Return the names of the script after its set-up, with `one_step` among them."""
    setup, _, body = script(experiment).partition("\nfor step in range(")
    lines = [
        line
        for line in body.splitlines()[1:]
        if line.strip() not in ("break", "") and not line.strip().startswith(_TELLS)
    ]
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(setup + "\n\ndef one_step():\n" + "\n".join(lines) + "\n", "plain loop", "exec"), names)
    return names

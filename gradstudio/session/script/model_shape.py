"""The shapes of the inputs and outputs of a script's network."""

from __future__ import annotations

from typing import NamedTuple

from gradstudio.core.combinations import PIXELS
from gradstudio.session.script.plan import Plan

COPIED = 10  # symbols that the copy task repeats


class Shape(NamedTuple):
    """Return the shapes of the task as Python writes them: the number of characters is known only when the script
    runs."""

    time_steps: int
    features: int | str
    outputs: int | str
    answers: int = 1


def shape(plan: Plan) -> Shape:
    steps = int(plan["problem.seq_len"])
    found = {
        "digits": Shape(8, 8, 10),
        "sequential_digits": Shape(steps, PIXELS // min(steps, PIXELS), 10),
        "adding": Shape(steps, 2, 1),
        "copy": Shape(COPIED + steps + 1 + COPIED, 10, 8, COPIED),
        "characters": Shape(steps, "len(vocabulary)", "len(vocabulary)", steps),
        "spirals": Shape(1, 2, 2),
        "ring": Shape(1, 2, 1),
        "pole": Shape(1, 4, 2),
    }[str(plan["problem.task"])]
    double = plan["loss.kind"] == "naive_variance"
    return found._replace(outputs=product(2, found.outputs)) if double else found


def each_step(plan: Plan) -> bool:
    """Return whether a network without memory answers every time step by itself."""
    goes = shape(plan)
    return plan["model.kind"] == "policy" or (
        plan["model.kind"] in ("mlp", "cnn") and goes.answers == goes.time_steps > 1
    )


def product(*factors: int | str) -> int | str:
    """Return a product, computed as far as its factors are known."""
    number, names = 1, []
    for factor in factors:
        if isinstance(factor, int):
            number *= factor
        else:
            names.append(factor)
    if not names:
        return number
    return " * ".join([*([str(number)] if number != 1 else []), *names])

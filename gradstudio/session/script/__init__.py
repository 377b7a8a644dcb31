"""The plain PyTorch program of an experiment: what a good engineer would write by hand, printing the numbers of the run.

It repeats the run's operations in their order, so on the CPU in fp32 its losses and norms are equal to the last bit, but where
torch has no utility of its own for what the engine does (clipping by AGC or per layer). Each file of this folder writes the part
of the program that it is named after.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gradstudio.core.events import Change
from gradstudio.core.experiment import Experiment
from gradstudio.core.text import one_line
from gradstudio.session.script import data, loop, mistakes, model, weights
from gradstudio.session.script.plan import Lines, Plan, effective, literal


def script(experiment: Experiment, timeline: Sequence[Change] = (), *, title: str = "", threads: str = "1") -> str:
    """The program, ending in a newline. `threads` is what torch computed with: another number rounds sums in another order."""
    plan = Plan(experiment, tuple(effective(experiment, timeline)))
    body = Lines()
    loop.timeline(plan, body)
    data.data(plan, body)
    model.model(plan, body)
    weights.function(plan, body)
    loop.functions(plan, body)
    body.add("torch.manual_seed(seed)")
    body.add(f"model = {model.build(plan)}")
    weights.draw(plan, body)
    body.add("model.to(device)")
    loop.before(plan, body)
    loop.loop(plan, body)
    text = str(body)
    head = Lines()
    head.add(f'"""{_quoted(title) or "Training"} in plain PyTorch.\n\nPrints step, loss and gradient norm (before clipping) of every step.\n"""\n')
    setup = _setup(experiment, threads)
    for group in _IMPORTS:
        found = [module for module, used in group.items() if re.search(used, setup + text)]
        if found:
            head.add("\n".join([*found, ""]))
    head.add(setup)
    mistakes.unseen(plan, head, text)
    return f"{head}\n\n{_spaced(text)}\n"


def _setup(experiment: Experiment, threads: str) -> str:
    """What is set before anything is computed."""
    lines = [f"torch.set_num_threads({threads})  # another number rounds sums in another order"]
    if experiment.run.deterministic:
        if experiment.run.device != "cpu":
            lines.append('os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # else cuBLAS cannot be deterministic')
        lines.append("torch.use_deterministic_algorithms(True)")
    # `auto` takes the first accelerator where the script runs.
    auto = '"cuda" if torch.cuda.is_available() else "cpu"'
    lines.append(f"device = torch.device({auto if experiment.run.device == 'auto' else literal(experiment.run.device)})")
    return "\n".join([*lines, f"seed = {experiment.run.seed}"])


# What is imported where the program uses it: Python's own, then what must be installed.
_IMPORTS = (
    {"import math": r"\bmath\.", "import os": r"\bos\.", "from types import SimpleNamespace": "SimpleNamespace"},
    {
        "import numpy as np": r"\bnp\.",
        "import torch": "",
        "from torch import nn": "",
        "from torch.nn import functional as F": r"\bF\.",
        "from torch.utils.checkpoint import checkpoint": r"\bcheckpoint\(",
    },
)


def _spaced(text: str) -> str:
    """The same lines with empty ones between them as PEP 8 has them: two around a function or class, one before a loop or
    a comment that begins a part."""
    spaced: list[str] = []
    before = ""  # the last line that is not empty
    inside = False  # a function or a class
    for line in text.split("\n"):
        if not line:
            if spaced and spaced[-1] and before.startswith(" "):
                spaced.append("")
            continue
        top = not line.startswith((" ", "]", ")"))
        if top:
            starts = line.startswith(("def ", "class ", "@"))
            gap = 2 if (starts or inside) and not before.startswith("@") else int(line.startswith(("for step", "# ", "torch.manual")))
            while spaced and not spaced[-1]:
                spaced.pop()
            spaced += [""] * (gap if spaced else 0)
            inside = starts
        spaced.append(line)
        before = line
    return "\n".join(spaced)


def _quoted(title: str) -> str:
    """A title that cannot end the docstring it stands in."""
    return one_line(title).replace("\\", "").replace('"', "'")

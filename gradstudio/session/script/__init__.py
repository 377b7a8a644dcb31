"""The plain PyTorch program of an experiment: what a good engineer would write by hand. It prints the numbers of the
run.

The program repeats the operations of the run in their order. On the CPU of one machine, in fp32 and bf16, its losses
are those of the run to the last bit. The gradient norm is a sum, which the run adds up in another order: it agrees to
the nine digits that are printed. In fp16 both agree to about five digits.

Each file of this folder writes the part of the program that it is named after. May use core."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gradstudio.core.events import Change
from gradstudio.core.experiment import Experiment
from gradstudio.core.ranks_allowed import several
from gradstudio.core.studio_file import StudioFile
from gradstudio.core.text import one_line
from gradstudio.session.script import (
    data_lines,
    initialization_lines,
    loop_lines,
    mistake_lines,
    model_lines,
    own_model_lines,
    rank_lines,
)
from gradstudio.session.script.plan import Lines, Plan, effective, literal


def script(experiment: Experiment, timeline: Sequence[Change] = (), *, title: str = "", threads: str = "1") -> str:
    """Return the program, ending in a newline. `threads` is the number of CPU threads: another number adds up in
    another order."""
    plan = Plan(experiment, tuple(effective(experiment, timeline)))
    if experiment.studio_file is not None:
        return _of_own_model(plan, experiment.studio_file, title=title or experiment.studio_file.title, threads=threads)
    body = Lines()
    loop_lines.timeline(plan, body)
    data_lines.data(plan, body)
    rank_lines.order(plan, body)
    model_lines.model(plan, body)
    initialization_lines.function(plan, body)
    loop_lines.functions(plan, body)
    body.add("torch.manual_seed(seed)")
    body.add(f"model = {model_lines.build(plan)}")
    initialization_lines.draw(plan, body)
    body.add("model.to(device)")
    loop_lines.before(plan, body)
    loop = Lines()
    loop_lines.loop(plan, loop)
    rank_lines.around(plan, loop, body)
    text = str(body)
    head = Lines()
    head.add(_docstring(title, int(experiment.distributed.ranks)))
    setup = _setup(experiment, threads)
    for group in _IMPORTS:
        found = [module for module, used in group.items() if re.search(used, setup + text)]
        if found:
            head.add("\n".join([*found, ""]))
    head.add(setup)
    mistake_lines.unseen(plan, head, text)
    return f"{head}\n\n{_spaced(text)}\n"


def _of_own_model(plan: Plan, file: StudioFile, *, title: str, threads: str) -> str:
    """Return the program of a studio file: its text, then the loop in a function that is called."""
    body = Lines()
    loop_lines.timeline(plan, body)
    own_model_lines.data(plan, body)
    loop_lines.functions(plan, body)
    body.add(f"model = {own_model_lines.build(plan)}")
    own_model_lines.draw(plan, body)
    body.add("model.to(device).train()")
    own_model_lines.parameters(body)
    loop_lines.before(plan, body)
    loop_lines.loop(plan, body)
    text = str(body)
    head = Lines()
    mistake_lines.unseen(plan, head, text)
    head.add("\n".join([_device(plan.experiment), f"seed = {plan.experiment.run.seed}"]))
    settings = "\n".join(_before_all(plan.experiment, threads))
    return own_model_lines.program(
        file,
        _docstring(title),
        ["import os"] * ("os." in settings),
        f"{settings}\ntorch.manual_seed({plan.experiment.run.seed})",
        [module for module, used in _OF_THE_LOOP.items() if re.search(used, text)],
        f"{head}\n{_spaced(text)}",
    )


def _docstring(title: str, ranks: int = 1) -> str:
    start = f"Start it with: torchrun --nproc-per-node {ranks} train.py\n\n" if ranks > 1 else ""
    return (
        f'"""{_quoted(title) or "Training"} in plain PyTorch.\n\n{start}Prints step, loss and gradient norm (before '
        'clipping, nine digits) of every step.\n"""\n'
    )


def _setup(experiment: Experiment, threads: str) -> str:
    """Return the settings that come before any computation."""
    lines = _before_all(experiment, threads)
    if several(experiment):
        return "\n".join([*lines, *rank_lines.meet(experiment), f"seed = {experiment.run.seed}"])
    return "\n".join([*lines, _device(experiment), f"seed = {experiment.run.seed}"])


def _before_all(experiment: Experiment, threads: str) -> list[str]:
    lines = [f"torch.set_num_threads({threads})  # another number rounds sums in another order"]
    if experiment.run.deterministic:
        if experiment.run.device != "cpu":
            lines.append(
                'os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # else cuBLAS cannot be deterministic'
            )
        lines.append("torch.use_deterministic_algorithms(True)")
    return lines


def _device(experiment: Experiment) -> str:
    # `auto` takes the first accelerator where the script runs.
    auto = '"cuda" if torch.cuda.is_available() else "cpu"'
    return f"device = torch.device({auto if experiment.run.device == 'auto' else literal(experiment.run.device)})"


# What is imported where the program uses it: Python's own, then what must be installed.
_IMPORTS = (
    {
        "import importlib.util": r"\bimportlib\.",
        "import math": r"\bmath\.",
        "import os": r"\bos\.",
        "import signal": r"\bsignal\.",
        "import sys": r"\bsys\.",
        "import time": r"\btime\.sleep",
        "from contextlib import nullcontext": r"\bnullcontext\(",
        "from pathlib import Path": r"\bPath\(",
        "from types import SimpleNamespace": "SimpleNamespace",
    },
    {
        "import numpy as np": r"\bnp\.",
        "import torch": "",
        "import torch.distributed as dist": r"\bdist\.",
        "from torch import nn": "",
        "from torch.distributed.algorithms.join import Join": r"\bJoin\(",
        "from torch.distributed.device_mesh import init_device_mesh": r"\binit_device_mesh\(",
        "from torch.distributed.fsdp import fully_shard": r"\bfully_shard\(",
        "from torch.distributed.nn.functional import all_reduce": r"(?<!\.)\ball_reduce\(",
        "from torch.nn import functional as F": r"\bF\.",
        "from torch.nn.parallel import DistributedDataParallel": "DistributedDataParallel\\(",
        "from torch.utils.checkpoint import checkpoint": r"\bcheckpoint\(",
    },
)


# Likewise beside a studio file, which brings the rest.
_OF_THE_LOOP = {
    "import math": r"\bmath\.",
    "from types import SimpleNamespace": "SimpleNamespace",
    "from torch import nn": r"\bnn\.",
}


def _spaced(text: str) -> str:
    """Return the lines with empty ones between them as PEP 8 asks: two around a function or class, one before a loop
    or a comment that begins a part."""
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
            gap = (
                2
                if (starts or inside) and not before.startswith("@")
                else int(line.startswith(("for step", "# ", "torch.manual")))
            )
            while spaced and not spaced[-1]:
                spaced.pop()
            spaced += [""] * (gap if spaced else 0)
            inside = starts
        spaced.append(line)
        before = line
    return "\n".join(spaced)


def _quoted(title: str) -> str:
    """Return a title that cannot end the docstring in which it stands."""
    return one_line(title).replace("\\", "").replace('"', "'")

"""`%load_ext gradstudio` and `%%watch`, which watches the training in one notebook cell."""

from __future__ import annotations

import argparse
import shlex
from typing import Any

from torch.optim import Optimizer

from gradstudio.core import files
from gradstudio.watching import training_watch
from gradstudio.watching.recording.run_facts import Script
from gradstudio.watching.steps.watch_options import POLICIES, Options


def load_ipython_extension(shell: Any) -> None:
    """Add the magic `%%watch`."""
    shell.register_magic_function(lambda line, cell: _watch_cell(shell, line, cell), "cell", "watch")


def _watch_cell(shell: Any, line: str, cell: str) -> None:
    """Run a cell, watch every optimizer in it, and show the results."""
    from IPython.display import HTML, display  # pyright: ignore[reportMissingImports]

    from gradstudio.session.files.report.cell import cell as shown

    asked = _options().parse_args(shlex.split(line))
    if (before := training_watch.current()) is not None and not before.closed:
        before.close("finished")
    options = Options(asked.on_nonfinite, asked.every, not asked.no_updates)
    watcher = training_watch.begin(files.user_library(), Script(None, (), asked.name), True, options)
    for value in list(shell.user_ns.values()):  # those of the previous cells
        if isinstance(value, Optimizer):
            watcher.watch(None, value)
    try:
        shell.run_cell(cell)
    finally:
        watcher.close("finished")
        display(HTML(shown([value.run for value in watcher.runs if value.run is not None])))


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("%%watch", exit_on_error=False)
    parser.add_argument("--name", default="")
    parser.add_argument("--on-nonfinite", choices=POLICIES, default="explain")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--no-updates", action="store_true")
    return parser

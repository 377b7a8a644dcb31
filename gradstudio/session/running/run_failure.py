"""The exception that ended a run, as one sentence."""

from __future__ import annotations

from gradstudio.core import ranks_allowed
from gradstudio.core.experiment import Experiment
from gradstudio.core.text import first_line, one_line

NEEDED = {"torch": "PyTorch"}  # by module


def describe(fault: BaseException, in_force: Experiment) -> str:
    """Return an exception as one sentence, with the usual solution if there is one."""
    text, kind = first_line(fault, 400), one_line(type(fault).__name__)
    if isinstance(fault, ranks_allowed.RankFailure):
        return text
    if isinstance(fault, ModuleNotFoundError) and fault.name in NEEDED:
        return (
            f"{NEEDED[fault.name]} is not installed, and nothing trains without it; install it with: pip install "
            f"{fault.name}"
        )
    if "out of memory" in text.lower() or isinstance(fault, MemoryError) or "can't allocate memory" in text.lower():
        lower = "problem.batch_size or model.width" if in_force.studio_file is None else "problem.batch_size"
        return f"Out of memory{f': {text[:300]}' if text else ''}. Halve {lower} and restart."
    mistakes = [knob.name for knob, value in in_force.items() if knob.section == "mistakes" and value]
    cause = f" (switched on: {', '.join(mistakes)})" if mistakes else ""
    return f"{kind}{f': {text}' if text else ''}{cause}"

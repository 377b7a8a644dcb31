"""Runs the reference as it is, with a few knobs set: python -m gradstudio.program.reference clipping.kind=norm"""

from __future__ import annotations

import sys

from gradstudio.core.experiment import Experiment
from gradstudio.program import run_reference

if __name__ == "__main__":
    run_reference(Experiment().with_texts(sys.argv[1:]))

"""What comes before any computation."""

import os

import torch

from gradstudio.program.reference.given import *

torch.set_num_threads(plan.threads)  # another number of threads sums in another order
if knobs.run_deterministic:
    if knobs.run_device != "cpu":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # else cuBLAS cannot be deterministic
    torch.use_deterministic_algorithms(True)

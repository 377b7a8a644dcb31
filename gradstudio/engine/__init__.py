"""Training: one concept a file. The only part of the program that imports torch."""

import os

from gradstudio.core.knobs import KnobError

THREADS = os.environ.get("GRADSTUDIO_THREADS", "")

if THREADS and not (THREADS.isascii() and THREADS.isdecimal() and 1 <= int(THREADS) <= 1024):
    raise KnobError(f"GRADSTUDIO_THREADS = {THREADS[:60]} is not allowed; allowed: a whole number from 1 to 1024 (default 1)")

# Read by OpenMP when torch is first imported. More threads than cores can make a small model a hundred times slower beside a window.
if THREADS:
    os.environ["OMP_NUM_THREADS"] = THREADS
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Read by cuBLAS when its first handle is made; without it some of its sums are not repeatable.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

"""Training; apart from watching/, the only part that imports torch: trainer.py has the step, step/ its parts, models/
and tasks/ the models and data, gauges/ the measurements of each step, probes/ those on demand, passes/ fast forward and
backward passes.
May use core; never session or gui."""

import os

from gradstudio.core import threads

# Read by OpenMP when torch is first imported. More threads than cores can make a small model a hundred times slower
# beside a window.
THREADS = os.environ["OMP_NUM_THREADS"] = threads.chosen()
# Read by cuBLAS when its first handle is created; without it some of its sums are not repeatable.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
# Read by oneDNN at its first convolution. It would cache the kernels of 1,024 shapes, which is 100 MB after some
# hundred models; a run needs far fewer.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "256")

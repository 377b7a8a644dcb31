"""Starts a program late, as a busy machine does. `make test-perturbed` puts this folder on PYTHONPATH, and Python imports
this file by itself in every program that a test starts."""

import os
import random
import time

if os.environ.get("PERTURB") == "behind" and "PYTEST_VERSION" in os.environ:  # so not pytest itself
    time.sleep(random.choice((0.2, 1.0, 3.0)))

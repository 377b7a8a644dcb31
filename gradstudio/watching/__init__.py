"""Watching a user's training script: the calls of torch in it are observed, measured and written into the run library.
hooks/ hooks into torch, script/ reads the script, steps/ assembles observations into the steps of one optimizer,
measuring/ measures its tensors, births/ finds where a NaN was born, ranks/ combines the figures of several processes,
recording/ writes the run. watcher.py has one of each for each optimizer, and startup/ is what Python imports before it
runs the script.
May use core, engine, session and crash; never gui. Nothing here may change a number of the script, or stop it."""

import os

_SETTINGS = ("OMP_NUM_THREADS", "CUBLAS_WORKSPACE_CONFIG", "ONEDNN_PRIMITIVE_CACHE_CAPACITY")
_of_the_script = {name: os.environ.get(name) for name in _SETTINGS}

import torch  # noqa: E402, F401 (before the engine, so that torch reads the settings of the script)

import gradstudio.engine  # noqa: E402, F401

for _name, _value in _of_the_script.items():  # the engine has chosen its own
    if _value is None:
        os.environ.pop(_name, None)
    else:
        os.environ[_name] = _value

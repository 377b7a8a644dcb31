"""Plain data: knobs, experiments, presets, the record of a run, and the rules that diagnose it.
Knows nothing about training. Every other layer uses it.
May use core; of packages numpy, numba, pydantic, tomli_w, platformdirs and the standard library, never torch or Qt."""

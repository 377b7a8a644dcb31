"""Plain data: knobs, experiments, presets, the record of a run, and the rules that diagnose it.
Knows no torch, no Qt and no training: numpy, numba, pydantic and the standard library only.
May be used by every other layer; uses none of them.
"""

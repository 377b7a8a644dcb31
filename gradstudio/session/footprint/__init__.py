"""The memory use of an experiment, computed in a separate process: process.py starts it and sends requests, budget.py
rejects what does not fit into run.memory_budget, estimator.py computes in the background while knobs move. texts.py:
the texts about it. May use core and session/own_model.py; never session/running or session/words."""

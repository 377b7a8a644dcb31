"""What an experiment would take of memory, asked of a process of its own: process.py starts it and asks, budget.py
refuses what does not fit into run.memory_budget, estimator.py asks in the background while knobs move.
texts.py: what the program says about it. May use core and session/own_model.py; never session/running or
session/words."""

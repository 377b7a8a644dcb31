"""Runs without a window: training, recording, writing files and describing results. No Qt.
Parts, each using those before it: record, library, machine, own_model.py, footprint, running, words, course, script,
files, map, simulator.py.
May use core, worker, program and engine (inside functions, so that nothing imports torch before a run starts)."""

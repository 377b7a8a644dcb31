"""This machine: what can train on it, whether everything is installed (doctor.py), and what the doctor of another
place says (place_search.py). Nothing here knows a run.
May use core, program, session/library (whose health the doctor checks) and engine (inside functions).
"""

"""This machine: what can train on it, whether everything is installed (doctor.py), and what the doctor of another place
reports (place_search.py). Nothing here depends on runs.
May use core, program, session/library (whose health the doctor checks) and engine (inside functions)."""

"""The sentences about a run: its state, its story, hints under the knobs, gauge readings, the lesson. Findings are
worded by their rules (core/rules/). May use core, session/record, session/machine, session/library, session/running and
session/own_model.py."""

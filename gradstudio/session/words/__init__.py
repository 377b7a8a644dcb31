"""The sentences about a run: its state, its story, hints under the knobs, gauge readings, the
lesson. Findings are worded by their rules (core/rules/). May use record, machine, library and running."""

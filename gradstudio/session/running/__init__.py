"""Running a run: the worker thread, rewinding, trying fixes, finding where a NaN was born, on-demand gauges. A run is
written here and nowhere else.
May use core, session/record, session/library, session/machine, session/own_model.py, session/footprint and engine
(inside functions)."""

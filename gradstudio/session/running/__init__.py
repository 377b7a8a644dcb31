"""What makes a run go: the worker thread, rewinding, trying fixes, finding where a NaN was born, gauges on demand.
A run is written here and nowhere else.
May use session/record, session/machine and, inside functions, the engine.
"""

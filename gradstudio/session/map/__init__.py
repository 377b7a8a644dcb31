"""The stability map: where training holds, over two knobs, each cell a real run. map_plan.py defines the cells,
refine.py which of them to train next, workers.py trains them in other processes, journal.py stores them, and mapper.py
does it all in a thread. May use core, session/record, session/files and engine (inside functions)."""

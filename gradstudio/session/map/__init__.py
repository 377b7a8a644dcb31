"""The stability map: where training holds, over two knobs, each cell a real run. map_plan.py defines the cells,
refine.py which of them to train next, workers.py trains them in other processes, place_cells.py at a place, journal.py
stores them, and mapper.py does it all in a thread. May use core, worker, session/own_model.py, session/record,
session/files, session/remote and engine (inside functions)."""

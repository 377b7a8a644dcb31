"""Training by a worker, in a process of its own: what a run is in frames (run_document.py, run_news.py), what a worker
does with them (serving.py, looks_served.py), and what stands here for it (remote_worker.py, remote_looks.py).
May use core, worker, session/record, session/library, session/machine, session/own_model.py, session/footprint and
session/running.
"""

"""Training by a worker in a separate process: the representation of a run in frames (run_document.py, run_news.py), the
worker's side (serving.py and what it serves), and its counterpart here (remote_worker.py, remote_looks.py).
May use core, worker, session/record, session/library, session/machine, session/own_model.py, session/footprint and
session/running."""

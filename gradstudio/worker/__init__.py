"""The worker: a process that trains, here or elsewhere, and the messages in both directions. frames.py is the protocol,
worker_process.py the process from the point of view of its owner. The session defines the contents of the frames.
May use core; never session, gui or torch."""

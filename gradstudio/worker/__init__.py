"""The worker: a process that trains, here or elsewhere, and what is said to it and by it. frames.py is the protocol,
worker_process.py the process as the one who started it sees it.
What is in the frames is said by the session.
May use core; never session, gui or torch."""

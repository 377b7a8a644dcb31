"""TensorBoard's files: export.py writes one for a run; messages.py and records.py implement the format, also for
reading. May use core, session/record, session/words and session/files; TensorBoard itself need not be installed."""

"""TensorBoard's files: export.py writes one of a run; messages.py and records.py know the format, also for reading.
May use core, session/record, session/words and session/files; TensorBoard itself need not be installed."""

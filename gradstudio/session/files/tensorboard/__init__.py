"""TensorBoard's files: export.py writes one of a run; messages.py and records.py know the format, also for reading.
May use core, the record of a run and session/words; TensorBoard itself need not be installed."""

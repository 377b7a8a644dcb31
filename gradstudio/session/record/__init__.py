"""The run itself: its record, its writer, its branches and twins, and the snapshots that are kept of it.
Readers get a Run, which is read-only; RunWriter is for the worker. Everything else in session/ builds on this folder.
May use core and engine (inside functions); no other folder of session."""

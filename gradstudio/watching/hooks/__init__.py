"""Callbacks for torch's actions in the user's script: hooks into torch, clipping, scalers, autocast; with the guard
that keeps faults of the watch away from the script.
May use core and engine; no other folder of watching."""

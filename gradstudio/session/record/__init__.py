"""What a run is: its record, who may write it, its branches and twins, and the snapshots that are kept of it.
Readers hold a Run, which cannot write; RunWriter is for the worker. Everything else in session/ is built on this room.
May use core and engine (inside functions); no other room of session.
"""

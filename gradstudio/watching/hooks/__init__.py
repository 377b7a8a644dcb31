"""What torch does in somebody's script, told as it happens: hooks into torch, clips, scalers, autocast; with the guard
that keeps faults of the watch from the script.
May use core and engine; no other room of watching.
"""
